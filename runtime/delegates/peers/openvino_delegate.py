"""The implementation of `openvino`: its CPU plugin runs a file that its own frontend for TFLite has read."""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from runtime.common.installation import install_command
from runtime.delegates.base import Array, LoadedModel
from runtime.delegates.partition import DelegationReport
from runtime.delegates.peers.openvino import DESCRIPTOR, openvino_version
from runtime.delegates.peers.whole_model import WholeModel
from runtime.errors import (
    DelegateError,
    InvocationError,
    OutOfMemoryError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)
from runtime.model.graph import Tensor
from runtime.model.interface import Interface, load_interface

_DEVICE: Final = "CPU"
_HINTS: Final = {"fp32": "f32", "bf16": "bf16"}
_NARROW: Final = {"bf16": "bf16", "f16": "fp16"}
"""OpenVINO's names of the types narrower than float32 that a node may compute in, and the farm's."""

_REPORTER: Final = "openvino_telemetry"
_PLACE = re.compile(r"Exception from src/\S+:\d+:")
_SUFFIX: Final = ".tflite"
_NO_MEMORY = re.compile(r"bad_alloc|[Cc]annot allocate|not enough memory")


class OpenVinoDelegate:
    """Whole-model delegate over `openvino.Core` and its CPU plugin.

    Args:
        options: `threads` (1..n) and `precision` (fp32 | bf16); None for the defaults.

    Raises:
        DelegateError: an unknown option or value, or OpenVINO cannot be imported.
        UnsupportedPrecisionError: OpenVINO does not compute in this precision on this CPU.
    """

    name = "openvino"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = DESCRIPTOR.parse(options or {})
        self._core = _imported().Core()
        precision = self._options["precision"]
        able = self._core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES")
        if precision == "bf16" and "BF16" not in able:
            raise UnsupportedPrecisionError(
                f"openvino: it does not compute in bf16 on this CPU, only in {', '.join(able)}; use fp32"
            )
        self._executed: Counter[str] = Counter()

    @staticmethod
    def preload() -> None:
        """Import OpenVINO ahead of time, so that the import is not measured. Raises `DelegateError`."""
        _imported()

    def load(self, path: str) -> LoadedModel:
        """Compile the file as OpenVINO's frontend reads it.

        Raises `ModelFormatError` for a broken file, `UnsupportedOperatorError` with OpenVINO's words where
        it cannot read or compile the model, `OutOfMemoryError`, and `UnsupportedPrecisionError` where no
        node computes in the precision that was asked for.
        """
        interface = load_interface(path)
        with tempfile.TemporaryDirectory() as folder:
            # OpenVINO chooses its frontend by the end of the name, which the files of a store lack.
            named = Path(folder, f"model{_SUFFIX}")
            named.symlink_to(Path(path).absolute())
            try:
                model = self._core.read_model(named)
            except RuntimeError as error:
                raise _mapped(error, str(named), path) from error
        session = _Session(self._core, model, interface, self._settings(), self._note)
        return WholeModel("openvino", interface, session)

    def describe(self) -> Mapping[str, str]:
        """Version, threads, the precision in which nodes compute, and how many do in each."""
        counts = ", ".join(f"{count} in {kind}" for kind, count in sorted(self._executed.items()))
        return {
            "openvino": openvino_version() or "unknown",
            "threads": str(self._options["threads"] or "all"),
            "precision": self._precision(),
            "nodes": counts or "not compiled",
        }

    def _settings(self) -> dict[str, Any]:
        threads = self._options["threads"]
        return {
            "INFERENCE_PRECISION_HINT": _HINTS[self._options["precision"]],
            "PERFORMANCE_HINT": "LATENCY",
            # A single stream has all threads work on the one request that runs at a time.
            "NUM_STREAMS": 1,
            **({"INFERENCE_NUM_THREADS": threads} if threads else {}),
        }

    def _note(self, executed: Counter[str]) -> None:
        """Take note of what a model computes in. Raises `UnsupportedPrecisionError` where nothing is bf16."""
        self._executed = executed
        if self._options["precision"] == "bf16" and self._precision() != "bf16":
            kinds = ", ".join(sorted(executed))
            raise UnsupportedPrecisionError(
                f"openvino: no node of this model computes in bf16, only in {kinds}; use fp32"
            )

    def _precision(self) -> str:
        """Return the narrowest float type that a node computes in; before a load, the requested one."""
        if not self._executed:
            return str(self._options["precision"])
        return next((ours for theirs, ours in _NARROW.items() if self._executed[theirs]), "fp32")


class _Session:
    """A compiled model; see `whole_model.Session`."""

    def __init__(self, core: Any, model: Any, interface: Interface, settings: Any, note: Any) -> None:
        self._core = core
        self._model = model
        self._interface = interface
        self._settings = settings
        self._note = note
        self._request: Any = None
        self._outputs: list[Any] = []
        count = interface.operators
        # One plugin compiles the whole graph or none of it: nothing is left to another runtime.
        self.delegation = DelegationReport("full", count, count, 1, (), title="OpenVINO")

    def prepare(self, inputs: Sequence[Array]) -> None:
        """Compile for these shapes, and bind the arrays as inputs. See `whole_model.Session`."""
        tensor = _imported().Tensor
        ports = _ports(self._model.inputs, self._interface.inputs)
        try:
            if any(
                tuple(port.partial_shape) != array.shape for port, array in zip(ports, inputs, strict=True)
            ):
                self._model.reshape({port: list(a.shape) for port, a in zip(ports, inputs, strict=True)})
            compiled = self._core.compile_model(self._model, _DEVICE, self._settings)
        except RuntimeError as error:
            raise _mapped(error) from error
        self._note(executed_types(compiled))
        self._request = compiled.create_infer_request()
        for port, array in zip(_ports(compiled.inputs, self._interface.inputs), inputs, strict=True):
            _check_type(port, array.dtype.name)
            # Shared, so that each run sees what `set_tensor` has written into the array.
            self._request.set_tensor(port, tensor(array, shared_memory=True))
        self._outputs = _ports(compiled.outputs, self._interface.outputs)

    def run(self) -> None:
        """Run to completion. Raises `InvocationError`."""
        try:
            self._request.infer()
        except RuntimeError as error:
            raise InvocationError(f"openvino: {_words(error)}") from error

    def output(self, position: int) -> Array:
        """OpenVINO's own memory of an output."""
        found: Array = self._request.get_tensor(self._outputs[position]).data
        return found


def executed_types(compiled: Any) -> Counter[str]:
    """Count the nodes that compute in each type, by the names of the primitives that run them.

    `runtimePrecision` would name the weights' type of a float32 convolution with float16 weights.
    """
    found: Counter[str] = Counter()
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = node.get_rt_info()
        kind, primitive = (facts[key].astype(str) for key in ("layerType", "primitiveType"))
        if kind not in ("Const", "Input", "Output", "Reorder"):
            # A primitive's name ends with its type, as in `jit_avx512_f32`.
            found[primitive.rpartition("_")[2].lower()] += 1
    return found


def _ports(ports: Sequence[Any], tensors: Sequence[Tensor]) -> list[Any]:
    """Return the ports of the file's tensors, by name; by position if the frontend has renamed one."""
    if len(ports) != len(tensors):
        raise UnsupportedOperatorError(
            f"openvino: it sees {len(ports)} inputs or outputs where the file has {len(tensors)}"
        )
    named = {name: port for port in ports for name in port.get_names()}
    found = [named.get(tensor.name) for tensor in tensors]
    return list(ports) if None in found or len(set(map(id, found))) != len(found) else found


def _check_type(port: Any, expected: str) -> None:
    found = port.get_element_type().to_dtype().name
    if found != expected:
        raise UnsupportedOperatorError(
            f"openvino: input {port.get_any_name()!r} is {expected} in the file and {found} in OpenVINO"
        )


def _imported() -> Any:
    """OpenVINO, imported on demand and without the package that reports its import to its makers.

    That package sends the report and leaves files in the home folder. Where it is absent OpenVINO goes on
    without it.
    """
    modules: dict[str, Any] = sys.modules
    hidden = "openvino" not in modules and _REPORTER not in modules
    if hidden:
        # None makes an import fail as if the package were not installed.
        modules[_REPORTER] = None
    try:
        return import_module("openvino")
    except ImportError as error:
        fix = install_command("openvino")
        raise DelegateError(f"openvino: openvino cannot be imported ({error}); {fix}") from error
    finally:
        if hidden:
            del modules[_REPORTER]


def _words(error: Exception) -> str:
    """OpenVINO's message in one line, without the places in its sources through which it passed."""
    return " ".join(_PLACE.sub("", str(error)).split()) or f"{type(error).__name__} without a reason"


def _mapped(error: Exception, named: str = "", path: str = "") -> Exception:
    """Return the error for OpenVINO's own, which may name the file as it was `named` for it."""
    words = f"openvino: {_words(error).replace(named, path) if named else _words(error)}"
    if _NO_MEMORY.search(words):
        return OutOfMemoryError(f"{words}; measure a smaller model or input")
    return UnsupportedOperatorError(words)
