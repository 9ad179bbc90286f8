"""Eight bits for an ONNX model: samples to calibrate on, onnxruntime's quantizer, and what it costs."""
