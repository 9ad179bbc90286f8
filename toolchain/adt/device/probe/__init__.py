"""What a device is made of: CPU clusters, memory, temperatures, GPU and what its OpenCL offers."""
