"""Features of signals."""
