"""Bundles and packages on a device: what is sent, where it lies, and what is removed again."""
