"""The references that agents made, and how often those of a model were forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0016 to 0017."""
    op.create_table(
        "reference_claim",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("model_sha256", sa.String(), nullable=False),
        sa.Column("inputs", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("maker", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.Column("limit_s", sa.Float(), nullable=False),
        sa.Column("trusted", sa.Boolean(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agent.agent_id"], name=op.f("fk_reference_claim_agent_id_agent")
        ),
        sa.ForeignKeyConstraint(
            ["model_sha256"], ["model.sha256"], name=op.f("fk_reference_claim_model_sha256_model")
        ),
        sa.PrimaryKeyConstraint("key", "agent_id", name=op.f("pk_reference_claim")),
    )
    op.create_index("ix_reference_claim_model_sha256", "reference_claim", ["model_sha256"])
    op.create_table(
        "forgotten_references",
        sa.Column("model_sha256", sa.String(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("model_sha256", name=op.f("pk_forgotten_references")),
    )
