"""LiteRT for tests of our tools: in the suite's worker, where a tool starts a process for every model.

A process imports LiteRT for longer than it runs so small a model. Tests of the processes themselves have the
fixture `own_processes`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from runtime.measure.inputs import InputRule
from runtime.tools.model_bisect import oracle
from runtime.tools.model_diff import worker
from runtime.tools.model_diff.running import LocalModel, Ran, Running, Setting
from tests.oracle import LiteRtError, call_in_litert

_numbers = count()
_models: dict[int, LocalModel] = {}
"""The models that are open in the worker."""


def litert_runs(data: bytes, feeds: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
    """Return what `oracle.litert_runs` does."""
    return call_in_litert(f"{__name__}:run_all", data, list(feeds))


@contextmanager
def opened(setting: Setting, path: Path, rules: Mapping[str, InputRule]) -> Iterator[Running]:
    """Open a model as `worker.opened` does."""
    is_foreign = setting.kind == "litert"
    model: Running = _ModelInWorker(setting, path, rules) if is_foreign else LocalModel(setting, path, rules)
    try:
        yield model
    finally:
        model.close()


class _ModelInWorker:
    """A model of LiteRT, as `worker.opened` gives one."""

    def __init__(self, setting: Setting, path: Path, rules: Mapping[str, InputRule]) -> None:
        self._number = next(_numbers)
        told = self._ask("open_model", setting, path, dict(rules))
        self.inputs, self.facts, self.settings = told

    def run(self, feeds: Sequence[np.ndarray], invokes: int) -> Ran:
        ran, self.settings = self._ask("run_model", list(feeds), invokes)
        return ran

    def close(self) -> None:
        self._ask("close_model")

    def _ask(self, function: str, *args: Any) -> Any:
        try:
            return call_in_litert(f"{__name__}:{function}", self._number, *args)
        except LiteRtError as error:
            raise worker.WorkerError(" ".join(error.text.split())) from None


# ------------------------------------------------------------------ in the worker


def run_all(_litert: Any, data: bytes, feeds: list[np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / oracle._MODEL).write_bytes(data)
        oracle.write_arrays(folder / oracle._INPUTS, feeds)
        oracle._main(folder)
        return {run: oracle.read_arrays(folder / f"{run}.npz") for run in oracle.RUNS}


def open_model(
    _litert: Any, number: int, setting: Setting, path: Path, rules: Mapping[str, InputRule]
) -> Any:
    model = _models[number] = LocalModel(setting, path, rules)
    return model.inputs, model.facts, model.settings


def run_model(_litert: Any, number: int, feeds: list[np.ndarray], invokes: int) -> Any:
    return _models[number].run(feeds, invokes), _models[number].settings


def close_model(_litert: Any, number: int) -> None:
    if number in _models:
        _models.pop(number).close()
