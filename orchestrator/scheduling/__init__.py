"""The scheduler: applies messages, assigns cells, publishes jobs and declares attempts lost."""
