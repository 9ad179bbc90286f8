"""Search for fast schedules of a model's kernels, measured on real devices; keep and apply what was found."""
