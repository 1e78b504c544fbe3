"""Products: convolutions, fully connected layers and batched matrix products."""
