"""The command line: parse, call one function of :mod:`adt.api`, render its result."""
