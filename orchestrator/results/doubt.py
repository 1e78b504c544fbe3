"""Which results are too doubtful to be judged by, and why.

A verdict over a disturbed figure is a guess. Over one that another tool measured, it would compare two ways
of measuring.
"""

from __future__ import annotations

from orchestrator.config.judging import judges_disturbed
from orchestrator.results.comparable import Believed, Comparable


def doubt(cell: Comparable | None) -> str | None:
    """Return why a cell's times carry no verdict, as `doubt_text`; None where they may be judged."""
    if cell is not None and cell.imported is not None:
        return f"imported: measured by {cell.imported.tool}, not by this farm"
    trust = None if cell is None else cell.trust
    if trust is None or trust.verdict == "trusted":
        return None
    return None if trust.verdict == "suspect" and judges_disturbed() else doubt_text(trust)


def doubt_text(trust: Believed) -> str:
    """Write `suspect: WHY (and 2 more)`; empty for a result that is trusted."""
    if trust.verdict == "trusted":
        return ""
    more = f" (and {len(trust.reasons) - 1} more)" if len(trust.reasons) > 1 else ""
    return f"{trust.verdict}: {''.join(trust.reasons[:1])}{more}"
