"""Where elements go: copies, indices, shapes, fills."""
