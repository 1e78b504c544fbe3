"""Writes results as a Parquet file: the rows of the CSV file with types, the same in every file."""

import io
from collections.abc import Iterable
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.results.export import csv_columns, flat_results
from orchestrator.results.records import CellRecord
from runtime.common.installation import install_command

_TEXTS: Final = frozenset({
    "campaign", "model", "delegate", "device", "level", "status", "reason.code", "reason.text",
    "delegation.status", "accuracy.reference", "accuracy.verdict", "environment_id", "labelled.metric",
    "labelled.verdict", "ratio.against", "ratio.verdict", "variation.level", "cell_id", "campaign_id",
    "model_sha256", "device_name", "finished_at", "reused_from", "again", "flags", "conditions_id", "grade",
    "grade_reason", "p50_grade.grade", "quality.void", "quality.facts", "quality.stopped", "quality.seen",
    "quality.unseen", "imported.tool", "imported.file", "imported.sha256",
})  # fmt: skip
_TRUTHS: Final = frozenset({"variation.given_tuning", "quality.alternating"})


def results_parquet(cells: Iterable[CellRecord]) -> bytes:
    """Return the content of a Parquet file: a row for each cell, with the columns of `results_csv`.

    Every column has one type, whatever is missing: text, truth value or a float of 64 bits, any of them
    null. Raises `UsageError` where pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: PLC0415  # of an extra
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"Parquet needs pyarrow: {install_command('parquet')}") from error
    types = {name: pyarrow.float64() for name in csv_columns()}
    types |= dict.fromkeys(_TEXTS, pyarrow.string()) | dict.fromkeys(_TRUTHS, pyarrow.bool_())
    table = pyarrow.Table.from_pylist(flat_results(cells), schema=pyarrow.schema(types))
    written = io.BytesIO()
    pyarrow.parquet.write_table(table, written)
    return written.getvalue()
