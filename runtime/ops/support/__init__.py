"""The base of the operator families: contexts, the registry, evaluation, and numeric building blocks."""
