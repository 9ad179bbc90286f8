"""Adreno textures: activations in images, four channels to a texel, wherever a kernel can do it right.

Read in this order: :mod:`blocks` (the kernels on blocked tensors), :mod:`channels` (channels
become the second axis), :mod:`walk` (the forms of a tensor) and :mod:`layout` (which operators
work on them), :mod:`choice` (textures or buffers), :mod:`scopes` (which tensors become images),
:mod:`specialized` (their kernels), :mod:`schedule` (how these are scheduled; convolutions by
:mod:`tiles`, :mod:`direct` and :mod:`shared_sums`), :mod:`guard` (what the lowered kernels must
fulfil), :mod:`pipeline` (the order).
"""
