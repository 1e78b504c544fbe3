"""Whether outputs are right: rules, bounds and figures of agreement. Nothing here runs a model."""
