"""A package on disk: its files, one file of it, parts of it, and whether it is sound."""
