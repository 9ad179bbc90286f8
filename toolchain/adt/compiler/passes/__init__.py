"""The passes between an imported model and TVM's code generators.

They run in this order: :mod:`precision` (operators in half precision), :mod:`offload` (operators for
libraries), :mod:`pipeline` (the Relax passes of the target, with :mod:`layout`, :mod:`cpu` and :mod:`gpu`),
:mod:`lowering` (TIR). :mod:`adt.compiler.assemble` calls the last three.
"""
