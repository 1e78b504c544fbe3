"""Runs and times a model: inputs, starts, loops, passes, and the outputs that are judged."""
