"""Layouts: channels become the second axis, then the innermost four of a blocked tensor.

Read in this order: :mod:`blocks` (the kernels on blocked tensors), :mod:`channels` (channels become the
second axis), :mod:`walk` (the forms of a tensor), :mod:`operators` with :mod:`convolutions` and
:mod:`movement` (which operators work on them). Nothing here knows where a tensor is stored: see
:mod:`adt.compiler.passes.gpu.placement`.
"""
