"""Alembic's entry: upgrades the connection that `orchestrator.db.migrate` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from orchestrator.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
