"""Measure, compare with a reference, report."""
