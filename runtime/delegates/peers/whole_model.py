"""A model that another runtime runs, behind the methods of LiteRT's `Interpreter`."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from runtime.delegates.base import Array
from runtime.delegates.partition import DelegationReport
from runtime.errors import InvocationError, UnsupportedOperatorError
from runtime.model.graph import Tensor
from runtime.model.interface import Interface
from runtime.model.schema import TensorType


class Session(Protocol):
    """A model in the other runtime, with the shapes that its inputs have by now."""

    @property
    def delegation(self) -> DelegationReport | None:
        """The delegated part of the model, by the other runtime's own report; None where it makes none."""

    def prepare(self, inputs: Sequence[Array]) -> None:
        """Make the model ready to run with these arrays, which every run reads anew.

        It is called once for the shapes of the file and again after a resize. Raises what `load` raises.
        """

    def run(self) -> None:
        """Run to completion: the outputs are readable in host memory. Raises `InvocationError`."""

    def output(self, position: int) -> Array:
        """Return an output of the last run; the array is overwritten by the next."""


_EXCHANGED = frozenset({
    TensorType.FLOAT32, TensorType.FLOAT16, TensorType.FLOAT64, TensorType.BOOL,
    TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64,
    TensorType.UINT8, TensorType.UINT16, TensorType.UINT32, TensorType.UINT64,
})  # fmt: skip
"""Types with numpy's names: `runtime.ops` has a table of all, but its import takes a fifth of a second."""


def element_type(tensor: Tensor, runtime: str) -> np.dtype[Any]:
    """Return the numpy type of a model's input or output.

    Raises `UnsupportedOperatorError` for a type whose values numpy does not hold as they are.
    """
    if tensor.type not in _EXCHANGED:
        raise UnsupportedOperatorError(
            f"{runtime}: tensor {tensor.name!r} is {tensor.type.name}, which is not exchanged with it"
        )
    return np.dtype(tensor.type.name.lower())


class WholeModel:
    """The methods of LiteRT's `Interpreter` over a session; `runtime` stands in front of messages."""

    def __init__(self, runtime: str, interface: Interface, session: Session) -> None:
        self._runtime = runtime
        self._interface = interface
        self._session = session
        self._shapes = {tensor.index: tensor.shape for tensor in (*interface.inputs, *interface.outputs)}
        self._types = {
            tensor.index: element_type(tensor, runtime) for tensor in (*interface.inputs, *interface.outputs)
        }
        self._places = {tensor.index: place for place, tensor in enumerate(interface.outputs)}
        self._values: dict[int, Array] = {}
        self._has_run = False
        self.allocate_tensors()

    @property
    def delegation(self) -> DelegationReport | None:
        """The delegated part of the model, by the other runtime's own report; None where it makes none."""
        return self._session.delegation

    def get_input_details(self) -> list[dict[str, Any]]:
        """Index, name, shape, type and quantisation of each input, as LiteRT gives them."""
        return [self._details(tensor) for tensor in self._interface.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Return the same of each output; the shape is the file's until the model has run."""
        return [self._details(tensor) for tensor in self._interface.outputs]

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int]) -> None:
        """Give an input another shape, in force from the next `allocate_tensors`."""
        self._shapes[self._input(input_index).index] = tuple(int(size) for size in tensor_size)

    def allocate_tensors(self) -> None:
        """Prepare the model for the shapes of its inputs."""
        self._values = {
            tensor.index: np.zeros(self._shapes[tensor.index], self._types[tensor.index])
            for tensor in self._interface.inputs
        }
        self._session.prepare([self._values[tensor.index] for tensor in self._interface.inputs])
        self._has_run = False

    def set_tensor(self, tensor_index: int, value: Array) -> None:
        """Copy an input in. Raises `ValueError` where type or shape differ."""
        target = self._values[self._input(tensor_index).index]
        if value.dtype != target.dtype or value.shape != target.shape:
            raise ValueError(
                f"Cannot set tensor: input {tensor_index} is {target.dtype.name}{list(target.shape)}, "
                f"got {value.dtype.name}{list(value.shape)}"
            )
        # In place: the session reads this very array at every run (`Session.prepare`).
        target[...] = value

    def invoke(self) -> None:
        """Run to completion. Raises `InvocationError` with the other runtime's words."""
        self._session.run()
        if not self._has_run:
            for index, place in self._places.items():
                self._shapes[index] = self._session.output(place).shape
            self._has_run = True

    def get_tensor(self, tensor_index: int) -> Array:
        """Return a copy of an output, or of an input as it was set."""
        if tensor_index in self._values:
            return self._values[tensor_index].copy()
        if tensor_index not in self._places:
            raise ValueError(f"{self._runtime}: tensor {tensor_index} is neither an input nor an output")
        if not self._has_run:
            raise InvocationError(f"{self._runtime}: output {tensor_index} has no value before the first run")
        return self._session.output(self._places[tensor_index]).copy()

    def _input(self, index: int) -> Tensor:
        found = next((tensor for tensor in self._interface.inputs if tensor.index == index), None)
        if found is None:
            raise ValueError(f"{self._runtime}: tensor {index} is not an input of the model")
        return found

    def _details(self, tensor: Tensor) -> dict[str, Any]:
        shape = np.array(self._shapes[tensor.index], np.int32)
        known = tensor.quantization
        # Several scales LiteRT tells in `quantization_parameters` alone, and zeros here.
        simple = known is not None and known.blocks is None and len(known.scales) == 1
        return {
            "name": tensor.name,
            "index": tensor.index,
            "shape": shape,
            "shape_signature": np.array(tensor.shape_signature or tuple(shape), np.int32),
            "dtype": self._types[tensor.index].type,
            "quantization": (known.scales[0], known.zero_points[0]) if known and simple else (0.0, 0),
        }
