"""Builders and measurers of candidates: processes and clusters that compile, devices that come and go."""
