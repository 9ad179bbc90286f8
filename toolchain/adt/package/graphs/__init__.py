"""Kernels in TVM's JSON that somebody else may have written: what may be in them, and reading them.

:mod:`check` looks at the text, without TVM; :mod:`reading` has TVM read what passed in a process
of its own first (:mod:`child`), since its reader trusts what it reads.
"""
