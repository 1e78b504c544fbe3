"""The implementation of `litert-gpu`, over `ai_edge_litert.compiled_model.CompiledModel`.

LiteRT says on the standard error output alone which adapter it chose, which operators it leaves to the CPU,
and why it found no GPU. Its accelerator may abort the process: its last words are the end of the log then.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from runtime.common.installation import install_command
from runtime.delegates.base import Array, LoadedModel
from runtime.delegates.litert import litert_version
from runtime.delegates.partition import DelegationReport
from runtime.delegates.peers.litert_gpu import DESCRIPTOR
from runtime.delegates.peers.litert_words import adapter_of, found_no_gpu, problems, report_of
from runtime.delegates.peers.spoken import spoken
from runtime.delegates.peers.whole_model import WholeModel
from runtime.errors import (
    DelegateError,
    FallbackForbiddenError,
    InvocationError,
    NoDeviceError,
    UnsupportedOperatorError,
)
from runtime.model.interface import Interface, load_interface

_EXCHANGED: Final = frozenset({"float32", "float16", "int32", "int8", "uint8", "bool"})
"""The types that LiteRT's `TensorBuffer` reads and writes in Python."""


class LiteRtGpuDelegate:
    """Whole-model delegate over LiteRT's GPU accelerator; operators that it lacks run on LiteRT's CPU path.

    Args:
        options: `precision` (fp32 | fp16), `threads` of the CPU path, `require_full_delegation`; None for the
            defaults.

    Raises:
        DelegateError: an unknown option or value, or LiteRT cannot be imported.
    """

    name = "litert-gpu"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = DESCRIPTOR.parse(options or {})
        _imported("compiled_model")
        self._adapter = "not known before a model is loaded"

    @staticmethod
    def preload() -> None:
        """Import LiteRT ahead of time, so that the import is not measured. Raises `DelegateError`."""
        for module in ("compiled_model", "hardware_accelerator", "options"):
            _imported(module)

    def load(self, path: str) -> LoadedModel:
        """Load the file on LiteRT's GPU accelerator.

        LiteRT is asked for the GPU alone first, and for GPU and CPU where it then names operators that the
        GPU lacks: alone it proves that the GPU runs everything, as with both the CPU could take over unseen.

        Raises:
            NoDeviceError: LiteRT finds no GPU that it can use.
            FallbackForbiddenError: operators stay on the CPU, and `require_full_delegation` is set.
            UnsupportedOperatorError: the GPU takes no operator, or inputs or outputs of such a type.
            ModelFormatError: the file is broken.
            DelegateError: anything else, with LiteRT's words.
        """
        interface = load_interface(path)
        accelerators = _imported("hardware_accelerator").HardwareAccelerator
        try:
            model, said = self._create(path, accelerators.GPU)
            report = _full(interface, model)
        except _PartialError as error:
            report = error.report
            if report.delegated_ops == 0:
                raise _with_report(
                    UnsupportedOperatorError(f"litert-gpu: LiteRT: {report}"), report
                ) from None
            if self._options["require_full_delegation"]:
                raise FallbackForbiddenError(f"Disallowed CPU fallback detected.\n{report}", report) from None
            model, said = self._create(path, accelerators.GPU | accelerators.CPU)
        self._adapter = adapter_of(said) or "not named by LiteRT"
        return WholeModel("litert-gpu", interface, _Session(model, interface, report))

    def describe(self) -> Mapping[str, str]:
        """Version, adapter as LiteRT names it, the precision that was asked for, threads of the CPU path."""
        return {
            "litert": litert_version() or "unknown",
            "adapter": self._adapter,
            "precision": self._options["precision"],
            "threads": str(self._options["threads"] or "all"),
        }

    def _create(self, path: str, accelerators: Any) -> tuple[Any, str]:
        """Create a model; also return LiteRT's messages. Raises as `load`, and `_PartialError`."""
        options = _imported("options")
        chosen = options.Options(
            hardware_accelerators=accelerators,
            gpu_options=options.GpuOptions(enforce_f32=self._options["precision"] == "fp32"),
            cpu_options=options.CpuOptions(num_threads=self._options["threads"] or 0),
        )
        heard = None
        try:
            with spoken() as heard:
                model = _imported("compiled_model").CompiledModel.from_file(path, options=chosen)
        except (RuntimeError, ValueError) as error:
            raise _failure(heard.text if heard else "", str(error), path) from error
        return model, heard.text


class _PartialError(Exception):
    """LiteRT refuses to leave operators to the CPU; the report says which."""

    def __init__(self, report: DelegationReport) -> None:
        super().__init__(str(report))
        self.report = report


class _Session:
    """A compiled model with its buffers; see `whole_model.Session`."""

    def __init__(self, model: Any, interface: Interface, delegation: DelegationReport) -> None:
        self.delegation = delegation
        self._model = model
        ((key, names), *_) = model.get_signature_list().items()
        details = model.get_input_tensor_details(key), model.get_output_tensor_details(key)
        self._inputs = _places(names["inputs"], details[0], [t.index for t in interface.inputs])
        self._outputs = _places(names["outputs"], details[1], [t.index for t in interface.outputs])
        self._key = key
        self._feeds: list[tuple[Any, Array]] = []
        self._readers: list[Callable[[], Array]] = []
        self._buffers: tuple[list[Any], list[Any]] = ([], [])
        self._values: list[Array] = []

    def prepare(self, inputs: Sequence[Array]) -> None:
        """Resize where a shape differs, and make buffers. See `whole_model.Session`."""
        shapes = self._model.get_input_tensor_details(self._key)
        names = self._model.get_signature_list()[self._key]
        try:
            for place, array in zip(self._inputs, inputs, strict=True):
                if tuple(shapes[names["inputs"][place]]["shape"]) != array.shape:
                    self._model.resize_input_tensor(place, list(array.shape), 0, strict=False)
            self._buffers = self._model.create_input_buffers(0), self._model.create_output_buffers(0)
        except (RuntimeError, ValueError) as error:
            raise DelegateError(f"litert-gpu: LiteRT: {_one_line(error)}") from error
        self._feeds = [(self._buffers[0][p], array) for p, array in zip(self._inputs, inputs, strict=True)]
        outputs = self._model.get_output_tensor_details(self._key)
        self._readers = [
            _reader(self._buffers[1][place], outputs[names["outputs"][place]]) for place in self._outputs
        ]

    def run(self) -> None:
        """Run, and read the outputs: LiteRT returns from a run before the GPU has ended it."""
        try:
            for buffer, array in self._feeds:
                buffer.write(array)
            self._model.run_by_index(0, *self._buffers)
            self._values = [read() for read in self._readers]
        except (RuntimeError, ValueError) as error:
            raise InvocationError(f"litert-gpu: LiteRT: {_one_line(error)}") from error

    def output(self, position: int) -> Array:
        """Return an output of the last run."""
        return self._values[position]


def _places(names: Sequence[str], details: Mapping[str, Any], indices: Sequence[int]) -> list[int]:
    """Return the positions of a signature's tensors in the file. Raises `UnsupportedOperatorError`."""
    found = {int(details[name]["index"]): place for place, name in enumerate(names)}
    for name in names:
        if (kind := details[name]["dtype"]) not in _EXCHANGED:
            raise UnsupportedOperatorError(
                f"litert-gpu: tensor {name!r} is {kind}, which LiteRT's buffers do not exchange in Python"
            )
    if missing := [index for index in indices if index not in found]:
        raise UnsupportedOperatorError(
            f"litert-gpu: LiteRT's signature lacks the model's tensor {missing[0]}"
        )
    return [found[index] for index in indices]


def _reader(buffer: Any, details: Mapping[str, Any]) -> Callable[[], Array]:
    shape, kind = tuple(details["shape"]), np.dtype(details["dtype"])
    count = int(np.prod(shape, dtype=np.int64))
    return lambda: np.asarray(buffer.read(count, kind)).reshape(shape)


def _full(interface: Interface, model: Any) -> DelegationReport:
    """Return the report of a model made for the GPU alone. Raises `DelegateError` if LiteRT denies that."""
    if not model.is_fully_accelerated():
        raise DelegateError("litert-gpu: LiteRT does not report that its GPU accelerator runs every operator")
    return DelegationReport("full", interface.operators, interface.operators, 1, (), title="GPU")


def _failure(said: str, error: str, path: str) -> Exception:
    """Return the error that LiteRT's words stand for."""
    report = report_of(said, path)
    if report is not None:
        return _PartialError(report)
    words = "; ".join(problems(said, error)) or "it gives no reason"
    if found_no_gpu(said):
        return NoDeviceError(f"litert-gpu: LiteRT finds no GPU that it can use: {words}")
    return DelegateError(f"litert-gpu: LiteRT: {words}")


def _with_report(error: UnsupportedOperatorError, report: DelegationReport) -> UnsupportedOperatorError:
    error.delegation = report
    return error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or f"{type(error).__name__} without a reason"


def _imported(module: str) -> Any:
    try:
        return import_module(f"ai_edge_litert.{module}")
    except ImportError as error:
        raise DelegateError(
            f"litert-gpu: ai-edge-litert cannot be imported ({error}); {install_command('peers')}"
        ) from error
