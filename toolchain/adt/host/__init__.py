"""This machine: programs, processes, the cache, SDKs and the TVM source tree."""
