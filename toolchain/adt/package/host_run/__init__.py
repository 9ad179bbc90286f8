"""Packages run on this machine by TVM's wheel, in a process of their own."""
