"""Compiler of a trained model to a ModelPackage: import, compile, link, describe."""
