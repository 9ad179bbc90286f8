"""What builds and measures candidates: processes and clusters that compile, devices that may come and go."""
