"""Adreno textures: activations in images, four channels to a texel, wherever a kernel can do it right.

Read in this order: :mod:`blocks` (the kernels on blocked tensors), :mod:`channels` (channels
become the second axis), :mod:`layout` (which operators work on blocked tensors), :mod:`scopes`
(which tensors become images), :mod:`schedule` (how a kernel that writes an image is
scheduled), :mod:`guard` (what the lowered kernels must fulfil), :mod:`pipeline` (the order).
"""
