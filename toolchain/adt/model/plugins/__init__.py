"""Plugins: what TVM's Python wheel was built without, built from TVM's source when it is first wanted."""
