"""The loop that acts on policy: takes messages in, assigns cells, publishes jobs, declares attempts lost."""
