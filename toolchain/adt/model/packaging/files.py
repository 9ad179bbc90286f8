"""What the files of a ModelPackage are called."""

MANIFEST = "mod.json"
LIBRARY = "mod.so"
PARAMS = "mod.params"
INSPECT = "inspect"
"""Directory of what `adt inspect` shows."""
ARCHIVE = ".tar"
"""Suffix of a package in one file."""
