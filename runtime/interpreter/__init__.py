"""What stands behind the API: signatures, details of tensors, slots and bound buffers."""
