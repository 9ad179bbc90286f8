"""Half precision: what is reduced, how, and how far off that is."""
