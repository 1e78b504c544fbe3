"""Measuring and judging: samples, timed invokes, agreement with the reference."""
