"""Convolutions and products of quantized tensors as sums of integers.

A quantized model says for each tensor of 8 bits which floats it stands for, ``(q - zero) * scale``, and
computes with these. Its convolutions and products need not::

    sum((x - zx) * sx * w * sw)  =  (sum(x * w) - zx * sum(w)) * (sx * sw)

What only moves elements, or takes the largest, moves the 8 bits; before a concatenation its parts become
what it is quantized to. Sigmoids and the like of 8 bits are looked up. All else stays an operator on floats,
which are computed where they are read: what follows a sum is part of its kernel, up to the next 8 bits.
"""
