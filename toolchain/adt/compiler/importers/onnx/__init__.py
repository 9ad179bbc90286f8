"""ONNX: read the file, fix its shapes, simplify and rewrite it (each step checked), convert it."""
