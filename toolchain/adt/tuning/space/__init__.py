"""Spaces of schedules: TVM's, and adt's own for kernels that use images."""
