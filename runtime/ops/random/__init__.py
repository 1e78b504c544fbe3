"""Random numbers, the same as LiteRT's for a seed."""
