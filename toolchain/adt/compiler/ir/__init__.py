"""Relax and TIR as all passes read and write them."""
