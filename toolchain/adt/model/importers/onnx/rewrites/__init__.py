"""Operators that TVM's importer refuses, misreads or converts badly, written with others.

One module for each kind of operator, each with its ``REWRITES``, which
:mod:`~adt.model.importers.onnx.rewrites.table` joins; :mod:`adt.model.importers.onnx.prepare`
runs the graph before and after each rewrite and compares both.
"""
