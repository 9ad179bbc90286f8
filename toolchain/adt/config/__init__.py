"""Settings: what they are (:mod:`adt.config.settings`) and where they come from (:mod:`adt.config.load`)."""
