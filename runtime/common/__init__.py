"""Hold what all three floors share: pure functions over plain values, without numpy, input or output."""
