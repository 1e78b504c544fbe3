"""Sensors of processors and GPUs: finds them, records their readings, and judges these."""
