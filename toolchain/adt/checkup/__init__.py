"""What `adt doctor` looks at: this machine, its NDK, its devices; what is wrong, and what mends it.

(A package named `doctor` would hide the verb `adt.doctor(...)`.)
"""
