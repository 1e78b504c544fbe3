"""Results have a quality and a grade in place of a verdict of trust; no rule reuses disturbed ones by name."""

from __future__ import annotations

import json
import math
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_CHUNK = 500
"""Results that are read at once: some megabytes."""

_AND_SUSPECT = "+suspect"


def upgrade() -> None:
    """Bring the tables from 0019 to 0020."""
    with op.batch_alter_table("result") as batch:
        batch.add_column(sa.Column("grade", sa.String(), nullable=True))
        batch.drop_column("trust")
    _convert_results()
    for table in ("campaign", "cell"):
        rules = sa.table(table, sa.column("reuse", sa.String()))
        plain = sa.func.replace(rules.c.reuse, _AND_SUSPECT, "")
        op.execute(rules.update().where(rules.c.reuse.like(f"%{_AND_SUSPECT}")).values(reuse=plain))


def _convert_results() -> None:
    result = sa.table(
        "result",
        sa.column("attempt_id", sa.String()),
        sa.column("measurement", sa.Text()),
        sa.column("facts", sa.JSON()),
        sa.column("grade", sa.String()),
    )
    connection = op.get_bind()
    rows = sa.select(result.c.attempt_id, result.c.measurement, result.c.facts)
    rows = rows.where(result.c.measurement.is_not(None)).order_by(result.c.attempt_id).limit(_CHUNK)
    change = result.update().where(result.c.attempt_id == sa.bindparam("id"))
    change = change.values(measurement=sa.bindparam("new"), grade=sa.bindparam("found"))
    last = ""
    while found := connection.execute(rows.where(result.c.attempt_id > last)).all():
        changed = []
        for attempt_id, text, facts in found:
            measurement = _with_quality(json.loads(text))
            grade = None if "imported_sha256" in (facts or {}) else _grade(measurement)
            changed.append({"id": attempt_id, "new": json.dumps(measurement), "found": grade})
        connection.execute(change, changed)
        last = found[-1].attempt_id


def _with_quality(measurement: dict[str, Any]) -> dict[str, Any]:
    trust = measurement.pop("trust", None)
    if trust is not None and measurement.get("quality") is None:
        void = trust["verdict"] == "invalid"
        measurement["quality"] = {
            "void": trust.get("reasons", []) if void else [],
            "facts": [] if void else trust.get("reasons", []),
            "seen": trust.get("seen", []),
            "unseen": trust.get("unseen", []),
        }
    return measurement


def _grade(measurement: dict[str, Any]) -> str | None:
    """As `orchestrator.results.grading` of this release grades what has no allowance."""
    if (measurement.get("quality") or {}).get("void"):
        return "void"
    ratio, latency = measurement.get("ratio"), measurement["latency_ms"]
    if ratio is None and latency.get("p50") is None:
        return None
    interval = (latency if ratio is None else ratio).get("ci95")
    if interval is None or interval[0] <= 0.0:
        return "noisy"
    half = math.log(interval[1] / interval[0]) / 2.0
    return "good" if half <= 0.03 else "fair" if half <= 0.10 else "noisy"
