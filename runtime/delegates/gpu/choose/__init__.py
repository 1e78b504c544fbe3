"""Which candidate runs: costs, timing, schedules, and choices of earlier starts."""
