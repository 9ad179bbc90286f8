"""What may be chosen for a kernel: TVM's design spaces, and adt's own for kernels that use images."""
