"""Alembic's scripts; `orchestrator.db.migrate` runs them."""
