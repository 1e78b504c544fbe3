"""Read-only queries."""
