"""Inputs of a model: made up, or read from arrays, bytes and pictures."""
