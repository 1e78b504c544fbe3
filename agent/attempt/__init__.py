"""One attempt at a job: its states, its files, its lease, its journal entry and its result."""
