"""Operators that move elements: copies, indices, shapes, fills."""
