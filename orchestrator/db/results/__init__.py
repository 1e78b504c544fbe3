"""Results: stored once, read as records."""
