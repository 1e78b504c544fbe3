"""Sensors of processors and GPUs: which there are, what they read during a measurement, what that means."""
