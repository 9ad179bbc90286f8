"""Well-known networks as ONNX models, built here: their published shapes, and untrained weights."""
