"""Reads result files of other tools into the form of a result of the farm."""

from orchestrator.results.imports.reading import MOST_BYTES, read_results
from orchestrator.results.imports.reports import ImportedResult, NotReadableError

__all__ = ["MOST_BYTES", "ImportedResult", "NotReadableError", "read_results"]
