"""What operator families share: contexts, the registry, evaluation, and numeric building blocks."""
