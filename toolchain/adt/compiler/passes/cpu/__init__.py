"""Kernels for CPUs: channels in blocks of a vector's lanes, schedules by rules, mathematics by vectors."""
