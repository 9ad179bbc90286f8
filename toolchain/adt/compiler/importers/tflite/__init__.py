"""TFLite: read the flatbuffer, fix its shapes, convert it with TVM's importer and mended converters."""
