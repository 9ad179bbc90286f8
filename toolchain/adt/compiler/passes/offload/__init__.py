"""Parts of a model for a vendor's library (CLML, cuDNN), which TVM calls."""
