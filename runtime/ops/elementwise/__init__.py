"""One result from the elements of one place."""
