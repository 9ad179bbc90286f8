"""Options: what they are (:mod:`adt.options.sections`) and where their values come from."""
