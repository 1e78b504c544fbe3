"""Chooses the next cell of a device: the candidate queries, and the choice among their rows."""
