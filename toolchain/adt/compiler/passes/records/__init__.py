"""Tuned schedules in a compile: which kernel a record is for, and how it is applied.

:mod:`workload` (what a record belongs to), :mod:`traces` (what it holds), :mod:`key` (the
target and TVM that it holds for), :mod:`tuning` (all that apply to one compile) and
:mod:`schedules` (the kernels get them). Records themselves are kept by ``adt.tuning``.
"""
