"""Convolutions and matrix products, in floats, in levels and in hybrids of both."""
