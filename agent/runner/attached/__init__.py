"""Attempts at attached devices: measured by running `benchmark_model` there; outputs are not judged."""
