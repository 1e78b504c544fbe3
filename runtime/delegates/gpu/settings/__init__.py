"""Options of the delegate, LiteRT's names for them, precision."""
