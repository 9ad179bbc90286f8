"""Bundles, which run on a device: presets, the cross-build and the TargetBundle it gives."""
