"""How a model is run and timed: inputs, starts, loops, passes, and the outputs that are judged."""
