"""Alembic's entry point: upgrades the connection of `orchestrator.db.migrate`, in its transaction."""

from alembic import context

from orchestrator.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
