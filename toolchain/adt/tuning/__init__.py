"""Search for fast schedules of a model's kernels, measured on real devices; keep and apply what was found.

:mod:`~adt.tuning.tasks` takes the kernels out of a model, :mod:`~adt.tuning.search` proposes candidates,
:mod:`~adt.tuning.fleet` builds and measures them, :mod:`~adt.tuning.database` keeps each result, and
:mod:`~adt.tuning.engine` lets all of that run at once.
"""
