"""Databases of records: none is lost, and they are exchanged with others."""
