"""The tools that read, plan, profile, cut and check a model on a delegate, and their command-line verbs."""
