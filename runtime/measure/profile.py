"""Opens a model as a measurement does, profiles it, and measures the peaks of what computes it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf, isfinite
from time import perf_counter_ns
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.api.interpreter import Interpreter
from runtime.common.profile import ModelProfile, Peaks
from runtime.common.stages import StageClock, clocked
from runtime.delegates.abilities import HasPeaks
from runtime.delegates.base import Array
from runtime.errors import DelegateError, FarmRuntimeError
from runtime.measure.loading import Opened, Subject
from runtime.plan.blas import one_blas_thread

Values: TypeAlias = NDArray[np.float32]

_SIDE: Final = 768
"""Rows of the square float32 matrices whose product shows the arithmetic peak: 10 ms on one core, and larger
ones were not faster."""

_STREAM: Final = 32 * 2**20
"""Float32 values, 128 MiB, that all threads copy together: more than the caches that cores share hold."""

_TRIES: Final = 5
"""Times that each program is run; the fastest counts, as a peak is what nothing disturbed."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profile with the delegate's effective settings, and the inputs by the index of their tensor."""

    delegate: str
    settings: Mapping[str, str]
    profile: ModelProfile
    inputs: Mapping[int, Array]


def profile_model(subject: Subject, rounds: int = 10, seconds: float = inf) -> Profiled:
    """Profile a model on the first set of a measurement's inputs, in `rounds`, or as many as take `seconds`.

    Raises `DelegateError` for a delegate of whole models, and what opening, inputs and a run raise.
    """
    opener = subject.opener
    if hasattr(opener.factory, "load"):
        raise DelegateError(
            f"delegate {opener.kind!r} runs whole models and tells nothing of what is in a run"
        )
    with clocked(StageClock()) as clock:
        opened = subject.open()
    model = opened.model
    # All others were refused above.
    assert isinstance(model, Interpreter)
    feeds = zip(model.get_input_details(), subject.pool(model).sets[0], strict=True)
    inputs = {int(detail["index"]): values for detail, values in feeds}
    for index, values in inputs.items():
        model.set_tensor(index, values)
    began = perf_counter_ns()
    model.invoke()
    # A round is a run as a whole and one kernel by kernel.
    affordable = int(seconds * 1e9 / (2 * (perf_counter_ns() - began))) if isfinite(seconds) else rounds
    found = model.profile(max(1, min(rounds, affordable)))
    settings = dict(opened.describe())
    model.close()
    stages = {str(name): ns for name, ns in clock.spent_ns.items()}
    peaks = _peaks(opened, int(opener.options.get("threads", 1)))
    known, why = (None, peaks) if isinstance(peaks, str) else (peaks, "")
    found = replace(found, stages_ns=stages, peaks=known, no_peaks=why)
    return Profiled(opener.kind, settings, found, inputs)


def _peaks(opened: Opened, threads: int) -> Peaks | str:
    """Return the peaks of what computes the model, or why there are none."""
    if opened.delegate is None:
        return processor_peaks(threads)
    if not isinstance(opened.delegate, HasPeaks):
        return f"the delegate {opened.kind} measures none"
    try:
        return opened.delegate.peaks()
    except FarmRuntimeError as error:
        return str(error)


def processor_peaks(threads: int) -> Peaks:
    """Return what so many threads of this process reach in numpy: matrix products and copies."""
    count = _STREAM // threads
    squares = [np.full((_SIDE, _SIDE), 0.5, np.float32) for _ in range(threads)]
    streams = [np.full(count, 0.5, np.float32) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool, one_blas_thread():
        product_ns = _fastest_ns(pool, squares, lambda to, one: np.matmul(one, one, out=to))
        copy_ns = _fastest_ns(pool, streams, np.copyto)
    # Per ns: a product and a sum for each term, and four bytes read and written for each value.
    return Peaks(2 * _SIDE**3 * threads / product_ns, 2 * 4 * count * threads / copy_ns)


def _fastest_ns(pool: Executor, sources: Sequence[Values], work: Callable[[Values, Values], object]) -> int:
    """Let each thread work on arrays of its own; return the shortest time of all together."""
    targets = [np.zeros_like(one) for one in sources]
    times = []
    for _ in range(_TRIES):
        began = perf_counter_ns()
        list(pool.map(work, targets, sources))
        times.append(perf_counter_ns() - began)
    return min(times)
