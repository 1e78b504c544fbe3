"""Elements in another order: reversed, or sorted."""
