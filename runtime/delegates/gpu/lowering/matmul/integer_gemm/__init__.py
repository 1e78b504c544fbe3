"""Sums of products of int8, exact as LiteRT's reference kernels: convolutions and matrix products."""
