"""Prunes, checks and backs up the database and the store."""
