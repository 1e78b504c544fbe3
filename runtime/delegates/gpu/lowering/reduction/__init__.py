"""Reductions, running sums and what is divided by them."""
