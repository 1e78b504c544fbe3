"""Recordings that outlive a process: a later start of a partition binds the plan of an earlier one again.

An entry is named by the model, the partition, the options and the device's name. It begins with everything
else that it depends on, so that one of another driver or of other sources is told apart, named and made anew.
"""

import hashlib
import io
import json
import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from typing import Any, Final

from runtime.delegates.base import Partition
from runtime.delegates.gpu.backends.base import KeepingBackend, Recording
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.keep.cache import Cache, own_state
from runtime.delegates.gpu.layout.packed_file import MappedConstants, PackedFiles
from runtime.delegates.gpu.layout.recording_plan import RecordingPlan
from runtime.delegates.gpu.settings.choices import parsed
from runtime.delegates.gpu.settings.options import Options

_KIND: Final = "recordings"

_OWN_MODULES: Final = __name__.removesuffix("delegates.gpu.start.recordings")
"""Beginning of the names of modules whose classes an entry may hold; nothing else is made of its bytes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptRecording:
    """The data that spares a start lowering, choosing, packing and planning.

    `kernels` are the keys of the functions by their names, in the order of their numbers; `files` the key and
    the size of the packed constants of each buffer that has any. `is_settled`: false where rules chose for a
    disturbed device. `refused`: see `preparing.Prepared`.
    """

    plan: RecordingPlan
    kernels: Mapping[str, str]
    files: Mapping[int, tuple[str, int]]
    narrow_weights: Mapping[WeightType, int]
    choices: Mapping[str, str]
    is_settled: bool
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recordings:
    """The entry of one partition. `depends_on`: what decides its content beside the key.

    `free_key`: of the start that chose by itself; its entry serves one that is `given` the same choices.
    """

    cache: Cache
    files: PackedFiles
    key: str
    free_key: str
    given: str | None
    depends_on: Mapping[str, str]

    def read(self) -> tuple[KeptRecording | None, str]:
        """Return what was kept, or None and why it is not used: empty where there was nothing."""
        if self.given is not None:
            free, _ = replace(self, key=self.free_key, given=None).read()
            if free is not None and free.is_settled and free.choices.items() <= parsed(self.given).items():
                return free, ""
        content = self.cache.read(_KIND, self.key)
        if content is None:
            return None, ""
        head, _, body = content.partition(b"\n")
        try:
            kept_for: dict[str, str] = json.loads(head)
            other = [name for name, value in self.depends_on.items() if kept_for.get(name) != value]
            if other:
                return None, self._unused(f"it was made with another {' and '.join(other)}")
            found = _Reader(io.BytesIO(body)).load()
        except Exception as error:  # noqa: BLE001  # whatever the bytes of an entry make of themselves
            return None, self._unused(f"it cannot be read ({type(error).__name__}: {error})")
        if not isinstance(found, KeptRecording):
            return None, self._unused("it holds something else")
        return found, ""

    def replayed(self, kept: KeptRecording, backend: KeepingBackend) -> Recording | str:
        """Bind a kept recording; the reason where something that it names is no longer there."""
        program = backend.known(kept.kernels)
        if program is None:
            return self._unused("a kernel that it names is missing")
        buffers = []
        for number, size in enumerate(kept.plan.constant_sizes):
            key, whole = kept.files.get(number, ("", 0))
            found = self.files.known(key, whole) if key else None
            if size and found is None:
                return self._unused("the packed constants that it names are missing")
            buffers.append(found)
        return backend.record(kept.plan, program, MappedConstants(buffers))

    def write(self, kept: KeptRecording) -> None:
        """Keep a recording whose constants are all in files; others are packed from the graph."""
        if all(number in kept.files for number, size in enumerate(kept.plan.constant_sizes) if size):
            head = json.dumps(dict(self.depends_on)).encode()
            self.cache.write(_KIND, self.key, head + b"\n" + pickle.dumps(kept, pickle.HIGHEST_PROTOCOL))

    def _unused(self, reason: str) -> str:
        _log.warning("gpu delegate: the kept recording %s is made anew: %s", self.key[:12], reason)
        return reason


def recordings_of(
    partition: Partition, device: Capabilities, options: Options, way: Quantised, files: PackedFiles | None
) -> Recordings | None:
    """Return where the recording of a partition is kept; None where nothing is, or the model has no bytes."""
    if files is None:
        return None
    # Options that do not affect a recording: where the cache lies, a context, whose text
    # differs from process to process, and the model's token, which is part of `owner`.
    asked = replace(options, context=None, cache_dir=None, serialization_dir=None, model_token=None)
    operators = [operator.index for operator in partition.operators]
    whole = (partition.subgraph.index, operators, partition.inputs, partition.outputs, partition.shapes)

    def key(asked: Options) -> str:
        wanted = (files.owner, whole, repr(asked), way.name, device.name, device.processor)
        return hashlib.sha256(repr(wanted).encode()).hexdigest()

    depends_on = {"driver": device.key, "device": repr(device), "version of the delegate": own_state()}
    free = replace(asked, choices=None)
    return Recordings(files.cache, files, key(asked), key(free), options.choices, depends_on)


class _Reader(pickle.Unpickler):
    """Makes objects of the delegate's own data classes alone.

    A name with a dot would reach what a module imports, and a function is not data.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = (
            super().find_class(module, name) if module.startswith(_OWN_MODULES) and "." not in name else None
        )
        if not (isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum))):
            raise pickle.UnpicklingError(f"{module}.{name} is no class of a recording")
        return found
