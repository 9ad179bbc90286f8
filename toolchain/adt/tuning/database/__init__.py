"""Databases of records: none is lost, and they are exchanged with others.

:mod:`store` keeps records, :mod:`sqlite_file` has the file that they are in, :mod:`contents` reads it into
memory, and :mod:`adt.tuning.records` is the form in which databases travel.
"""
