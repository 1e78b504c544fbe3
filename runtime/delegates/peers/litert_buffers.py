"""The buffers of a model that `ai_edge_litert.compiled_model.CompiledModel` runs, on any accelerator."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from runtime.common.installation import install_command
from runtime.delegates.base import Array
from runtime.delegates.litert import litert_version
from runtime.errors import DelegateError, InvocationError, UnsupportedOperatorError
from runtime.model.interface import Interface

_EXCHANGED: Final = frozenset({"float32", "float16", "int32", "int8", "uint8", "bool"})
"""The types that LiteRT's `TensorBuffer` reads and writes in Python."""


class Buffers:
    """The buffers of a model's first signature, in the order of the file's inputs and outputs.

    `runtime` stands in front of messages. Raises `UnsupportedOperatorError` for types that LiteRT does not
    exchange in Python.
    """

    def __init__(self, runtime: str, model: Any, interface: Interface) -> None:
        self._runtime = runtime
        self._model = model
        # The first signature, which is the one that `run_by_index(0)` runs.
        ((key, names), *_) = model.get_signature_list().items()
        details = model.get_input_tensor_details(key), model.get_output_tensor_details(key)
        self._inputs = self._places(names["inputs"], details[0], [t.index for t in interface.inputs])
        self._outputs = self._places(names["outputs"], details[1], [t.index for t in interface.outputs])
        self._key = key
        self._feeds: list[tuple[Any, Array]] = []
        self._readers: list[Callable[[], Array]] = []
        self._buffers: tuple[list[Any], list[Any]] = ([], [])

    def prepare(self, inputs: Sequence[Array]) -> None:
        """Resize where a shape differs, and make buffers. See `whole_model.Session`."""
        shapes = self._model.get_input_tensor_details(self._key)
        names = self._model.get_signature_list()[self._key]
        try:
            for place, array in zip(self._inputs, inputs, strict=True):
                if tuple(shapes[names["inputs"][place]]["shape"]) != array.shape:
                    self._model.resize_input_tensor(place, list(array.shape), 0, strict=False)
            # After the resizes, as buffers are made for the shapes of this moment.
            self._buffers = self._model.create_input_buffers(0), self._model.create_output_buffers(0)
        except (RuntimeError, ValueError) as error:
            raise DelegateError(f"{self._runtime}: LiteRT: {one_line(error)}") from error
        self._feeds = [(self._buffers[0][p], array) for p, array in zip(self._inputs, inputs, strict=True)]
        # Asked again, because a resize changes the shapes of outputs.
        outputs = self._model.get_output_tensor_details(self._key)
        self._readers = [
            _reader(self._buffers[1][place], outputs[names["outputs"][place]]) for place in self._outputs
        ]

    def write(self, *positions: int) -> None:
        """Copy these input arrays into their buffers, or all. Raises `InvocationError`."""
        try:
            for position in positions or range(len(self._feeds)):
                buffer, array = self._feeds[position]
                buffer.write(array)
        except (RuntimeError, ValueError) as error:
            raise self._stopped(error) from error

    def run(self) -> None:
        """Run with what the buffers hold. Raises `InvocationError`."""
        try:
            self._model.run_by_index(0, *self._buffers)
        except (RuntimeError, ValueError) as error:
            raise self._stopped(error) from error

    def read(self) -> list[Array]:
        """Return copies of the outputs, once they are computed. Raises `InvocationError`."""
        try:
            return [read() for read in self._readers]
        except (RuntimeError, ValueError) as error:
            raise self._stopped(error) from error

    def _stopped(self, error: Exception) -> InvocationError:
        return InvocationError(f"{self._runtime}: LiteRT: {one_line(error)}")

    def _places(self, names: Sequence[str], details: Mapping[str, Any], indices: Sequence[int]) -> list[int]:
        """Return the positions of the file's tensors in a signature."""
        found = {int(details[name]["index"]): place for place, name in enumerate(names)}
        for name in names:
            if (kind := details[name]["dtype"]) not in _EXCHANGED:
                raise UnsupportedOperatorError(
                    f"{self._runtime}: tensor {name!r} is {kind}, which LiteRT's CompiledModel does not "
                    "exchange in Python; its Interpreter does (kind: litert, api: interpreter)"
                )
        if missing := [index for index in indices if index not in found]:
            raise UnsupportedOperatorError(
                f"{self._runtime}: LiteRT's signature lacks the model's tensor {missing[0]}"
            )
        return [found[index] for index in indices]


def _reader(buffer: Any, details: Mapping[str, Any]) -> Callable[[], Array]:
    shape, kind = tuple(details["shape"]), np.dtype(details["dtype"])
    # Without a dtype, the product over no dimensions would be a float.
    count = int(np.prod(shape, dtype=np.int64))
    return lambda: np.asarray(buffer.read(count, kind)).reshape(shape)


def one_line(error: Exception) -> str:
    """LiteRT's message in one line."""
    return " ".join(str(error).split()) or f"{type(error).__name__} without a reason"


def require_version(runtime: str, version: str | None) -> None:
    """Raise `DelegateError` where this process would import another release of LiteRT than is asked for."""
    found = litert_version()
    if version not in (None, found):
        raise DelegateError(
            f"{runtime}: LiteRT {version} was asked for, and this process imports {found or 'none'}; a "
            "campaign measures another release, whose wheel the machine's operator allows (docs/lab.md)"
        )


def imported(runtime: str, module: str) -> Any:
    """Import a module of LiteRT. Raises `DelegateError` where it is not installed."""
    try:
        return import_module(f"ai_edge_litert.{module}")
    except ImportError as error:
        raise DelegateError(
            f"{runtime}: ai-edge-litert cannot be imported ({error}); {install_command('peers')}"
        ) from error
