"""One attempt at a job: its admission, states, files, lease, journal entry and result."""
