"""Reads result files of other tools into the form of a result of the farm."""

from __future__ import annotations

from orchestrator.results.imports.figures import ImportedResult, NotReadableError
from orchestrator.results.imports.reading import MOST_BYTES, read_results

__all__ = ["MOST_BYTES", "ImportedResult", "NotReadableError", "read_results"]
