"""Sessions, transactions, locks and what differs between SQLite and PostgreSQL."""
