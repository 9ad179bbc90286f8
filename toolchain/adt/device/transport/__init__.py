"""Transport to a device: adb's server, shells, files, ports, and how long each may take."""
