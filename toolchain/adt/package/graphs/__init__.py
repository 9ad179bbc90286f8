"""Kernels in TVM's JSON that somebody else may have written: what may be in them, and reading them."""
