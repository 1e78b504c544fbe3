"""`farm show`: one cell in full."""

from __future__ import annotations

from orchestrator.cli.verb import OK, CellId, Json, open_farm


def show(cell: CellId, as_json: Json = False) -> int:
    """Show one cell in full.

    Result, delegation with every fallback, accuracy, attempts, environment and raw samples.
    """
    from orchestrator.cli import output
    from orchestrator.cli.details import cell_text
    from orchestrator.results.export import cell_document

    with open_farm() as farm:
        record = farm.reading.cell(cell)
        processes = farm.reading.samples(record)
    if as_json:
        output.raw(cell_document(record, processes))
    else:
        output.line(cell_text(record, processes))
    return OK
