"""Details of tensors, signatures, slots and bound buffers, on which both APIs stand."""
