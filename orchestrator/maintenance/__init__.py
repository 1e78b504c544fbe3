"""Pruning, checking and backing up the database and the store."""
