"""Measuring and judging: samples, benchmark loop, agreement with the reference."""
