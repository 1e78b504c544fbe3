"""Pixels and boxes: pooling, resizing, detection."""
