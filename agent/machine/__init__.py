"""The host that runs the agent: its settings, its counters, its sensors."""
