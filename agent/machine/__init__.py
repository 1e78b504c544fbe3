"""What machine this is, and what happens on it: its settings, its counters, its sensors."""
