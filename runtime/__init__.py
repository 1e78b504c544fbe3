"""Runs one model on one device: `.tflite` in, tensors out. Importing it imports nothing else."""
