"""The `.tflite` file: bytes to a checked, frozen graph and back. Never executes a model."""
