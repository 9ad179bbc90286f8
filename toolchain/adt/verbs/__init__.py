"""Verbs, one file each: request, function, document and lines of what is printed.

From Python ``adt.VERB`` finds the function (:mod:`adt`); the command line finds the command of a verb by
``cli/verbs.json``. Modules import only what their options need; what a function needs it imports itself.
"""
