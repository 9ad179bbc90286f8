"""GPUs: blocked tensors, four channels to a texel, in images (Adreno) or buffers, and kernels for them.

Read in this order: :mod:`pipeline` (the passes), :mod:`choice` (which convolutions are blocked),
:mod:`placement` (which tensors become images, and their kernels), :mod:`schedules` (how these are
scheduled; convolutions by :mod:`tiles` and :mod:`convolution`). Kernels on plain tensors: :mod:`products`,
:mod:`rows` (softmax, normalizations, reductions), :mod:`recurrence`. What lowered kernels must fulfil
is in :mod:`adt.compiler.passes.lowering`.
"""
