"""Which cell a device runs next: the candidate queries and the choice among their rows."""
