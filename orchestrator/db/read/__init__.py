"""Queries that answer a reader and change nothing."""
