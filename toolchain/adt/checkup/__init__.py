"""Checks of `adt doctor`: this machine, its NDK, its devices; faults, and their remedies.

(A package named `doctor` would hide the verb `adt.doctor(...)`.)
"""
