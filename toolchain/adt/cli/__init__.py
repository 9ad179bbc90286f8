"""The command line: parse, call the command of a verb (:mod:`adt.verbs`), print its result."""
