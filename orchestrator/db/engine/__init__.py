"""Sessions, transactions, locks, and the differences between SQLite and PostgreSQL."""
