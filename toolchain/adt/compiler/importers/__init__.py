"""Importers: a trained model of any format to one Relax module with detached parameters."""
