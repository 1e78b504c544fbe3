"""The campaign file of each campaign, and where its models come from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0015 to 0016."""
    op.create_table(
        "manifest",
        sa.Column("campaign_no", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("document", sa.String(), nullable=False),
        sa.Column("chosen", sa.JSON(), nullable=False),
        sa.Column("origins", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign_no"], ["campaign.no"], name=op.f("fk_manifest_campaign_no_campaign")
        ),
        sa.PrimaryKeyConstraint("campaign_no", name=op.f("pk_manifest")),
    )
