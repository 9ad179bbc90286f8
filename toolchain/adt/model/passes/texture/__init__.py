"""Adreno textures: blocked tensors in images, four channels to a texel, wherever a kernel can do it right.

Read in this order: :mod:`pipeline` (the passes), :mod:`choice` (textures or buffers), :mod:`placement`
(which tensors become images, and their kernels), :mod:`schedules` (how these are scheduled; convolutions by
:mod:`tiles` and :mod:`convolution`). What lowered kernels must fulfil is in
:mod:`adt.model.passes.lowering`.
"""
