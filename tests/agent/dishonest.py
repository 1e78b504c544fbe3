"""Delegates that lie, as a third party would install them: found by entry point, run in the runner."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from runtime.delegates.descriptor import DelegateDescriptor
from runtime.measure.inputs import POOL_SIZE

NAMES = (
    "offset", "nan", "early", "random", "none", "stale", "warm",
    "enqueue", "content", "throttled", "lagging", "fallback", "blind", "sprinter", "nicer",
)  # fmt: skip
_ENTRY_POINTS = "[delegate_farm.delegates]\n" + "".join(
    f"{name} = dishonest_delegates:DESCRIPTORS.{name}\n" for name in NAMES
)
DESCRIPTORS = SimpleNamespace(
    **{
        name: DelegateDescriptor(
            name=name,
            implementation=f"dishonest_delegates:{name.capitalize()}Delegate",
            apis=("host", "opencl"),
        )
        for name in NAMES
    }
)


_WORK_S = 0.002
"""Seconds that the work of a slow device takes at least: a sleep, which no load makes shorter."""

THROTTLED_AFTER = 60
"""Runs after which `throttled` is slow. The test times twice as many."""


def install(folder: Path) -> None:
    """Make a distribution of this very module in `folder`, which must be on the module path."""
    metadata = folder / "dishonest_delegates-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copyfile(__file__, folder / "dishonest_delegates.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dishonest-delegates\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINTS)


class Loaded:
    """Our interpreter, with outputs passed through `change`."""

    def __init__(self, path: str) -> None:
        from delegate_farm import Interpreter

        self.inner = Interpreter(model_path=path)
        self.inner.allocate_tensors()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def get_tensor(self, index: int) -> Any:
        return self.change(self.inner.get_tensor(index))

    def change(self, value: Any) -> Any:
        return value


class WholeModel:
    loaded: type = Loaded
    name = "dishonest"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def load(self, path: str) -> Any:
        return self.loaded(path)

    def describe(self) -> Mapping[str, str]:
        return {"precision": "fp32"}


class OffsetLoaded(Loaded):
    def change(self, value: Any) -> Any:
        return value + np.float32(0.25)


class OffsetDelegate(WholeModel):
    """Computes something else."""

    loaded = OffsetLoaded


class NanLoaded(Loaded):
    def change(self, value: Any) -> Any:
        value.flat[0] = np.nan
        return value


class NanDelegate(WholeModel):
    """Emits a NaN."""

    loaded = NanLoaded


class RandomLoaded(Loaded):
    def change(self, value: Any) -> Any:
        # The first value may be zero, which stays as it is.
        value.flat[np.abs(value).argmax()] *= np.float32(1 + random.random() * 1e-5)
        return value


class RandomDelegate(WholeModel):
    """Right within the tolerance, but never twice the same."""

    loaded = RandomLoaded


class EarlyLoaded(Loaded):
    """Remembers every answer: right, but nothing is computed while time is taken."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.answers: dict[int, Any] = {}
        self.key = 0

    def set_tensor(self, index: int, value: Any) -> None:
        self.key = id(value)
        if self.key not in self.answers:
            self.inner.set_tensor(index, value)

    def invoke(self) -> None:
        if self.key not in self.answers:
            self.inner.invoke()

    def get_tensor(self, index: int) -> Any:
        if self.key not in self.answers:
            self.answers[self.key] = self.inner.get_tensor(index)
        return self.answers[self.key]


class EarlyDelegate(WholeModel):
    """Answers from memory."""

    loaded = EarlyLoaded


class StaleLoaded(Loaded):
    """Right for the first few runs; once it is timed it returns its last answer without computing."""

    honest_runs = 5

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.runs = 0
        self.answer: Any = None

    def invoke(self) -> None:
        self.runs += 1
        if self.runs <= self.honest_runs:
            self.inner.invoke()

    def get_tensor(self, index: int) -> Any:
        if self.runs <= self.honest_runs:
            self.answer = self.inner.get_tensor(index)
        return self.answer


class StaleDelegate(WholeModel):
    """Returns a stale output once it is warm."""

    loaded = StaleLoaded


class WarmLoaded(Loaded):
    """Right in the process whose outputs are judged, which runs each input set once; wrong in longer ones."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.runs = 0

    def invoke(self) -> None:
        self.runs += 1
        self.inner.invoke()

    def change(self, value: Any) -> Any:
        return value + np.float32(self.runs > POOL_SIZE)


class WarmDelegate(WholeModel):
    """Computes something else once it has run for a while."""

    loaded = WarmLoaded


class EnqueueLoaded(Loaded):
    """Returns from invoke at once, and computes when somebody asks for the output."""

    pending = False

    def invoke(self) -> None:
        self.pending = True

    def get_tensor(self, index: int) -> Any:
        if self.pending:
            time.sleep(_WORK_S)
            self.inner.invoke()
            self.pending = False
        return self.inner.get_tensor(index)


class EnqueueDelegate(WholeModel):
    """Only enqueues."""

    loaded = EnqueueLoaded


class ContentLoaded(Loaded):
    """Computes once for each content of the input, and remembers the answer."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.answers: dict[bytes, Any] = {}
        self.key = b""

    def set_tensor(self, index: int, value: Any) -> None:
        self.key = value.tobytes()
        self.inner.set_tensor(index, value)

    def invoke(self) -> None:
        if self.key not in self.answers:
            time.sleep(_WORK_S)
            self.inner.invoke()
            self.answers[self.key] = self.inner.get_tensor(self.inner.get_output_details()[0]["index"])

    def get_tensor(self, index: int) -> Any:
        return self.answers[self.key]


class ContentDelegate(WholeModel):
    """Caches by the content of the inputs."""

    loaded = ContentLoaded


class ThrottledLoaded(Loaded):
    """Runs out of what keeps it fast after half of the runs."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.runs = 0

    def invoke(self) -> None:
        self.runs += 1
        self.inner.invoke()
        time.sleep(_WORK_S * (5 if self.runs > THROTTLED_AFTER else 1))


class ThrottledDelegate(WholeModel):
    """Throttles half way."""

    loaded = ThrottledLoaded


class NicerLoaded(Loaded):
    """Runs at a lower priority from some invoke on, as if somebody else had seen to it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.runs = 0

    def invoke(self) -> None:
        self.runs += 1
        if self.runs == THROTTLED_AFTER:
            os.nice(5)
        self.inner.invoke()


class NicerDelegate(WholeModel):
    loaded = NicerLoaded


class LaggingLoaded(Loaded):
    """Returns what the invoke before it computed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.before: Any = None

    def invoke(self) -> None:
        self.before = self.now() if self.before is not None else None
        self.inner.invoke()
        if self.before is None:
            self.before = self.now()

    def now(self) -> Any:
        return self.inner.get_tensor(self.inner.get_output_details()[0]["index"])

    def get_tensor(self, index: int) -> Any:
        return self.before


class LaggingDelegate(WholeModel):
    """Returns the previous invoke's output."""

    loaded = LaggingLoaded


class BlindLoaded(Loaded):
    """Keeps the first input that it was given, and computes on that for ever."""

    given = False

    def set_tensor(self, index: int, value: Any) -> None:
        if not self.given:
            self.inner.set_tensor(index, value)
        self.given = True


class BlindDelegate(WholeModel):
    """Ignores its input."""

    loaded = BlindLoaded


class SprinterLoaded(Loaded):
    """Fast in the first two processes that are timed, which find few traces of others in their caches.

    Two, because a block that others disturbed is measured once more.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        starts = Path(os.environ["POCL_CACHE_DIR"]) / "starts"
        with starts.open("a") as file:
            file.write("x")
        self.is_slow = starts.stat().st_size > 3  # the cold process and two timed ones

    def invoke(self) -> None:
        self.inner.invoke()
        time.sleep(_WORK_S * (5 if self.is_slow else 1))


class SprinterDelegate(WholeModel):
    """Fast only in its first processes."""

    loaded = SprinterLoaded


class FallbackDelegate:
    """A partition delegate that claims every operator, and lets the CPU compute."""

    name = "fallback"
    max_delegated_partitions = 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def supports(self, graph: Any, operator: Any) -> Any:
        return None

    def compile(self, partition: Any) -> Any:
        return _OnTheCpu(partition)

    def describe(self) -> Mapping[str, str]:
        return {"precision": "fp32", "device": "the GPU, honestly"}


class _OnTheCpu:
    """The test's model in numpy: relu(x * gain)."""

    def __init__(self, partition: Any) -> None:
        (self.gain,) = partition.constants.values()

    def invoke(self, inputs: Any, outputs: Any) -> None:
        np.maximum(inputs[0] * self.gain, 0, out=outputs[0])

    def close(self) -> None:
        pass


class NoneDelegate:
    """A partition delegate that takes nothing: what would run is the CPU."""

    name = "none"
    max_delegated_partitions = 1

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def supports(self, graph: Any, operator: Any) -> Any:
        from runtime.delegates.base import Unsupported

        return Unsupported("not on Sundays")

    def compile(self, partition: Any) -> Any:
        raise AssertionError("nothing was supported")

    def describe(self) -> Mapping[str, str]:
        return {}
