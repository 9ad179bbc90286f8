"""Converters from ONNX operators to Relax that are adt's own, one module per kind of operator.

TVM's importer has none for some operators, and others of its compute something else or
cannot be compiled for every type. A rewrite to other ONNX operators is preferred where
there is one (:mod:`adt.model.importers.onnx.rewrites`); what is here is shorter as Relax,
or as a tensor expression.
"""
