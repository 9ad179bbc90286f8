"""Parts of a model for a vendor's library (CLML, NNAPI), which TVM calls."""
