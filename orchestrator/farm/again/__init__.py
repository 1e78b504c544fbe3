"""Measures existing results again, refines, imports and steers them."""
