"""Credentials of agents, and their one-time tokens. Events by cell: a pruned campaign finds them so."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Bring the tables from 0003 to 0004."""
    op.create_table(
        "invitation",
        sa.Column("token_sha256", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.Column("overlap_s", sa.Float(), nullable=False),
        sa.Column("used_at", MOMENT, nullable=True),
        sa.PrimaryKeyConstraint("token_sha256", name=op.f("pk_invitation")),
    )
    op.create_index(op.f("ix_invitation_agent_id"), "invitation", ["agent_id"])
    op.create_table(
        "credential",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("public_key", sa.String(), nullable=False),
        sa.Column("token_sha256", sa.String(), nullable=False),
        sa.Column("password_sha256", sa.String(), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("newest_issued", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_credential")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_credential_token_sha256")),
    )
    op.create_index(op.f("ix_credential_agent_id"), "credential", ["agent_id"])
    op.create_index(op.f("ix_event_cell_id"), "event", ["cell_id"])
