"""Takes the runs of a log of `benchmark_model` as results."""

from collections.abc import Iterator

from orchestrator.results.imports.reports import Figures, ImportedResult, NotReadableError
from runtime.common.benchmark_log import TOOL, LogError, read_log


def read_runs(text: str) -> Iterator[ImportedResult]:
    """Yield each run of a log. Raises `NotReadableError` where there is none, or the last is cut off."""
    try:
        for run in read_log(text):
            figures = Figures(
                run.count, run.mean, run.median, run.p95, init=run.init, first=run.first,
                memory_bytes=run.memory_bytes,
                settings={} if run.threads is None else {"threads": run.threads},
            )  # fmt: skip
            yield ImportedResult(TOOL, run.model, run.delegate, None, figures.measurement())
    except LogError as error:
        raise NotReadableError(str(error)) from error
