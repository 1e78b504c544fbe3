"""A farm on another machine: what is asked there, and what answers."""
