"""LiteRT's Python `Interpreter` over our plan: the same methods, dictionary keys and kinds of error."""

import enum
import operator
import os
import weakref
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from runtime.common.profile import ModelProfile
from runtime.common.stages import stage
from runtime.delegates.abilities import DeviceTime, NotTold
from runtime.delegates.asynchrony import NotStarted, RunSlot
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.epochs import Grouping
from runtime.delegates.partition import DelegationReport
from runtime.delegates.registry import Delegate, load_delegate
from runtime.errors import InvocationError, ModelError, ModelFormatError, OutOfMemoryError
from runtime.interpreter.bound_buffers import BoundBuffer, BoundBuffers
from runtime.interpreter.details import accepted, check_resize, operator_details, tensor_details
from runtime.interpreter.state import SubgraphState, slots_of, subgraph_state
from runtime.model.graph import Model, Signature, Tensor
from runtime.model.reader import load_model, read_model
from runtime.ops.support.registry import CustomRegistrar, custom_operator
from runtime.ops.support.value import Array, Shape, constant_array
from runtime.plan.profile import StepTime, model_profile
from runtime.plan.program import Program, check_operators
from runtime.plan.subgraph import PlannedSubgraph

__all__ = [
    "Delegate",
    "Interpreter",
    "InterpreterWithCustomOps",
    "OpResolverType",
    "SignatureRunner",
    "load_delegate",
]

_HELD = (
    "There is at least 1 reference to internal data in the interpreter in the form of a numpy array or "
    "slice. Be sure to only hold the function returned from tensor() if you are using raw data access."
)
_UNALLOCATED = "Tensor data is null. Run allocate_tensors() first"


T = TypeVar("T")
Registerer: TypeAlias = Callable[[CustomRegistrar], None]


class OpResolverType(enum.Enum):
    """LiteRT's kernel sets. This runtime has one set, the exact kernels; every member is accepted."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Interpreter:
    """Runs a `.tflite` model on numpy kernels and on the delegates that it is given.

    `num_threads` is the number of threads among which a kernel may split its rows; integer results do not
    depend on it. While a model runs, numpy's BLAS computes on the thread that calls it.

    Raises ValueError for a model that cannot be read (`ModelFormatError`) or has an operator that neither a
    delegate nor the CPU path runs (`UnsupportedOperatorError`, with `.delegation`), RuntimeError for calls in
    the wrong order and for a delegate that fails (`DelegateError`).
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: bytes | bytearray | memoryview | None = None,
        experimental_delegates: Sequence[PartitionDelegate] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType | enum.Enum = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
    ) -> None:
        # By the name, so that a member of LiteRT's own enumeration is accepted as well.
        if getattr(experimental_op_resolver_type, "name", None) not in OpResolverType.__members__:
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if num_threads is not None and not isinstance(num_threads, int):
            raise ValueError("type of num_threads should be int")
        if num_threads is not None and num_threads < 1:
            raise ValueError("num_threads should >= 1")
        for delegate in experimental_delegates or ():
            if not hasattr(delegate, "supports"):
                raise TypeError(
                    f"experimental_delegates: {delegate!r} is not a delegate; make one with "
                    f"load_delegate({delegate if isinstance(delegate, str) else 'gpu'!r})"
                )
        # These two steer LiteRT's own default delegate, which this runtime does not have.
        del experimental_default_delegate_latest_features, experimental_force_delegate_node_profiling
        self.experimental_compress_quantization_zero_points = experimental_compress_quantization_zero_points
        with stage("parse"):
            self._model = _load(model_path, model_content)
        self._num_threads = num_threads or 1
        grouping = Grouping(
            cluster=not experimental_disable_delegate_clustering,
            fuse=not experimental_disable_delegate_node_fusion,
        )
        self._program = Program(
            self._model,
            tuple(experimental_delegates or ()),
            grouping,
            preserve_all=experimental_preserve_all_tensors,
            num_threads=self._num_threads,
        )
        self._views: list[weakref.ref[Array]] = []
        self._bound = BoundBuffers()
        if experimental_delegates:
            self._primary.analyse()
        check_operators(self._model, skip_first=bool(experimental_delegates))

    @property
    def _primary(self) -> PlannedSubgraph:
        return self._program.subgraph(0)

    @property
    def model(self) -> Model:
        """The model as the reader returned it."""
        return self._model

    @property
    def delegation(self) -> DelegationReport | None:
        """The report on the operators that the delegates run, and why not more; None without a delegate."""
        return self._primary.report

    def allocate_tensors(self) -> None:
        """Plan, prepare every kernel, compile every partition. Needed once, and after each resize."""
        self._ensure_safe()
        self._primary.allocate()

    def invoke(self) -> None:
        """Run the primary subgraph.

        Raises RuntimeError before `allocate_tensors`, for values that an operator cannot process
        (`InvocationError`), and where memory does not suffice (`OutOfMemoryError`).
        """
        self._ensure_safe()
        if not self._primary.is_ready:
            raise RuntimeError("Invoke called on model that is not ready.")
        self._bound.run(self._primary, _run)

    def state(self) -> SubgraphState:
        """Return where the tensors of the primary subgraph lie, and which node runs each operator.

        Raises `RuntimeError` before `allocate_tensors`.
        """
        return subgraph_state(self._primary)

    def profile(self, rounds: int = 10) -> ModelProfile:
        """Run the primary subgraph on the inputs as they are, and time each kernel and operator.

        After one run that is not counted, `rounds` runs are timed as a whole, then as many in a pass of their
        own, in which each kernel of a delegate is waited for. Outputs and variables change as by `invoke`.
        Raises what `invoke` raises, and ValueError for less than one round.
        """
        if rounds < 1:
            raise ValueError(f"a profile needs at least one round, got {rounds}")
        self.invoke()
        whole = [_nanoseconds(self.invoke) for _ in range(rounds)]
        runs: list[list[StepTime]] = []
        for _ in range(rounds):
            self._ensure_safe()
            runs.append([])
            # With copies: a delegate that runs on the caller's buffers enqueues all kernels at once.
            self._bound.run(self._primary, partial(_run, times=runs[-1]), copies=True)
        graph = self._primary.subgraph
        shapes = {tensor.index: self._primary.shape(tensor.index) for tensor in graph.tensors}
        return model_profile(graph, shapes, runs, whole)

    def device_time(self) -> DeviceTime | NotTold:
        """Run the primary subgraph on the inputs as they are; return how long its devices computed.

        A delegate that runs on the caller's buffers runs on copies of them here. Where a delegate does not
        tell, outputs are undefined until the next `invoke`. Raises what `invoke` raises.
        """
        self._ensure_safe()
        if not self._primary.is_ready:
            raise RuntimeError("device_time called on a model that is not ready; call allocate_tensors.")
        told: list[DeviceTime | NotTold] = []
        self._bound.run(
            self._primary, lambda planned: told.append(_invoked(planned.device_time)), copies=True
        )
        return told[0]

    def run_slots(self, count: int) -> Sequence[RunSlot] | NotStarted:
        """Memory for so many runs in flight at once, for `RunSlot.start`; or why the delegate starts none."""
        return slots_of(self._primary, count)

    def get_input_details(self) -> list[dict[str, Any]]:
        """One dictionary for each input, in the model's order."""
        return [self._details(i, 0) for i in self._model.subgraphs[0].inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """One dictionary for each output, in the model's order."""
        return [self._details(i, 0) for i in self._model.subgraphs[0].outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        """One dictionary for each tensor of a subgraph."""
        tensors = self._program.subgraph(subgraph_index).subgraph.tensors
        return [self._details(t.index, subgraph_index) for t in tensors]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        subgraph = self._primary.subgraph
        return [operator_details(subgraph, o) for o in subgraph.operators]

    def _get_op_details(self, op_index: int) -> dict[str, Any]:
        return self._get_ops_details()[op_index]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:
        return self._details(self._tensor(tensor_index, subgraph_index).index, subgraph_index)

    def _get_full_signature_list(self) -> dict[str, dict[str, dict[str, int]]]:
        """Tensor index of each input and output of each signature, by name; the names are sorted."""
        return {
            s.key: {"inputs": dict(sorted(s.inputs)), "outputs": dict(sorted(s.outputs))}
            for s in self._model.signatures
        }

    def _native_handle(self) -> int:
        """Return a number that stands for this interpreter; no native object is behind it."""
        return id(self)

    def _details(self, index: int, subgraph_index: int) -> dict[str, Any]:
        planned = self._program.subgraph(subgraph_index)
        return tensor_details(planned.subgraph.tensors[index], planned.shape(index), planned.subgraph)

    def _tensor(self, index: int, subgraph_index: int = 0) -> Tensor:
        index = _int32(index)
        tensors = self._program.subgraph(subgraph_index).subgraph.tensors
        if not 0 <= index < len(tensors):
            raise ValueError(f"Invalid tensor index {index} exceeds max tensor index {len(tensors)}")
        return tensors[index]

    def set_buffer_handle(self, tensor_index: int, buffer: BoundBuffer | None) -> None:
        """Let the runs read an input from, or write an output to, a `TensorBuffer`; None ends that.

        It may be called before or after `allocate_tensors`. The buffer holds the tensor's own type. A
        delegate that runs the whole model uses its memory itself, as `CompiledModel` does; otherwise a run
        copies it to or from the interpreter's. An output that was left in a buffer stays there until the next
        run or `ensure_tensor_data_is_readable`, whatever is set here.

        Raises RuntimeError for a tensor that is no input or output, or a buffer of another type or too small.
        """
        tensor = self._tensor(tensor_index)
        self._bound.bind(tensor, self._primary, buffer)

    def set_allow_buffer_handle_output(self, allow_buffer_handle_output: bool) -> None:
        """Set whether outputs with a buffer stay there alone. True: `get_tensor` cannot read them before
        `ensure_tensor_data_is_readable`. False, the default: `invoke` also copies them to the interpreter.
        """
        self._bound.leaves_outputs = allow_buffer_handle_output

    def ensure_tensor_data_is_readable(self, tensor_index: int) -> None:
        """Copy an output that `invoke` has left in its buffer to the interpreter.

        Raises RuntimeError where that buffer is destroyed, or the output has another shape by now.
        """
        self._bound.refresh(self._tensor(tensor_index), self._primary)

    def _array(self, index: int, subgraph_index: int = 0) -> Array:
        tensor = self._tensor(index, subgraph_index)
        # Tensors of the first subgraph alone can have buffers of the caller's.
        if subgraph_index == 0:
            self._bound.check_readable(tensor)
        planned = self._program.subgraph(subgraph_index)
        found = planned.array(index)
        if found is None and planned.is_ready:
            # Constants that no kernel reads have no array in the plan.
            found = constant_array(tensor)
        if found is None:
            raise ValueError(_UNALLOCATED)
        return found

    def set_tensor(self, tensor_index: int, value: npt.ArrayLike) -> None:
        """Copy `value` in. Raises ValueError where type or shape differ, naming both."""
        self._set(tensor_index, value, 0)

    def _set(self, index: int, value: npt.ArrayLike, subgraph_index: int) -> None:
        tensor = self._tensor(index, subgraph_index)
        planned = self._program.subgraph(subgraph_index)
        array = accepted(tensor, planned.shape(index), value)
        target = planned.execution.arrays.get(index) if planned.is_ready and planned.execution else None
        if target is None:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        np.copyto(target, array)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Array:
        """Return a copy of a tensor. Intermediates are defined only with `experimental_preserve_all_tensors`.

        Raises ValueError where it has no values, RuntimeError where memory does not suffice for a copy.
        """
        array = self._array(tensor_index, subgraph_index)
        try:
            return array.copy()
        except MemoryError as error:
            raise OutOfMemoryError(f"tensor {tensor_index}: no memory for a copy: {error}") from error

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function that gives a writable view of the tensor; hold the function, not the view."""

        def view() -> Array:
            # A new array over the same memory: the weak reference tells whether the caller still holds it.
            array = np.asarray(self._array(tensor_index).data)
            self._views.append(weakref.ref(array))
            return array

        return view

    def _ensure_safe(self) -> None:
        self._views = [v for v in self._views if v() is not None]
        if self._views:
            raise RuntimeError(_HELD)

    def resize_tensor_input(self, input_index: int, tensor_size: npt.ArrayLike, strict: bool = False) -> None:
        """Give an input another shape, `strict` in unknown dimensions only; before `allocate_tensors`."""
        self._ensure_safe()
        size = np.atleast_1d(tensor_size)
        if size.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {size.ndim}.")
        self._resize(_int32(input_index), tuple(int(d) for d in size), 0, strict=strict)

    def _resize(self, index: int, size: Shape, subgraph_index: int, *, strict: bool = False) -> None:
        planned = self._program.subgraph(subgraph_index)
        if index not in planned.subgraph.inputs:
            raise RuntimeError(f"Tensor {index} is not an input of the model; only inputs can be resized.")
        check_resize(planned.subgraph.tensors[index], planned.shape(index), size, strict=strict)
        planned.resize(index, size)

    def reset_all_variables(self) -> None:
        """Set variable tensors back to zero (int8 ones to their zero point); resource variables stay."""
        self._program.reset_variables()

    def num_subgraphs(self) -> int:
        """Return the number of subgraphs of the model."""
        return len(self._model.subgraphs)

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Names of inputs and outputs of each signature; the names are sorted, as LiteRT sorts them."""
        return {
            s.key: {
                "inputs": sorted(name for name, _ in s.inputs),
                "outputs": sorted(name for name, _ in s.outputs),
            }
            for s in self._model.signatures
        }

    def get_signature_runner(self, signature_key: str | None = None) -> "SignatureRunner":
        """Return a callable for a signature; the key may be left out if the model has exactly one."""
        signatures = {s.key: s for s in self._model.signatures}
        if signature_key is None:
            if len(signatures) != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {len(signatures)} Signatures. "
                    "None is only allowed when the model has 1 SignatureDef"
                )
            signature_key = next(iter(signatures))
        if signature_key not in signatures:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        return SignatureRunner(self, signatures[signature_key])

    def close(self) -> None:
        """Release the delegates' device memory; the interpreter cannot be used afterwards."""
        self._program.close()

    def __del__(self) -> None:
        # "__init__" may have failed before there was one.
        program = getattr(self, "_program", None)
        if program is not None:
            program.close()

    def _run_signature(self, signature: Signature, values: dict[str, Array]) -> dict[str, Array]:
        inputs, where = dict(signature.inputs), signature.subgraph_index
        planned = self._program.subgraph(where)
        for name, value in values.items():
            self._resize(inputs[name], value.shape, where)
        planned.allocate()
        for name, value in values.items():
            self._set(inputs[name], value, where)
        if where == 0:
            self._bound.forget()
        _run(planned)
        return {name: self.get_tensor(index, where) for name, index in sorted(signature.outputs)}


class InterpreterWithCustomOps(Interpreter):
    """An interpreter that first lets each of `custom_op_registerers` register custom operators.

    A registerer is a function with `custom_operator` as its argument, or its name as `module:function`. Each
    is called once in a process, since every interpreter sees what it registers.
    """

    def __init__(
        self, custom_op_registerers: Sequence[str | Registerer] | None = None, **kwargs: Any
    ) -> None:
        for registerer in custom_op_registerers or ():
            _register(registerer)
        super().__init__(**kwargs)


@cache
def _register(registerer: str | Registerer) -> None:
    if isinstance(registerer, str):
        module, colon, function = registerer.partition(":")
        if not colon:
            raise ValueError(f"Looking up symbol '{registerer}' failed: a name is 'module:function'")
        registerer = cast(Registerer, getattr(import_module(module), function))
    registerer(custom_operator)


class SignatureRunner:
    """Runs one signature: it takes arrays by input name and returns arrays by output name."""

    def __init__(self, interpreter: Interpreter, signature: Signature) -> None:
        self._interpreter = interpreter
        self._signature = signature

    def __call__(self, **kwargs: npt.ArrayLike) -> dict[str, Array]:
        """Resize each input to its array, allocate, and run. Raises ValueError for wrong names or types."""
        names = [name for name, _ in self._signature.inputs]
        if len(kwargs) != len(names):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(names)} vs provided {len(kwargs)}"
            )
        for name in kwargs:
            if name not in names:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
        values = {name: np.asarray(value) for name, value in kwargs.items()}
        return self._interpreter._run_signature(self._signature, values)

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Details by input name."""
        return self._by_name(self._signature.inputs)

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Details by output name."""
        return self._by_name(self._signature.outputs)

    def _by_name(self, pairs: tuple[tuple[str, int], ...]) -> dict[str, dict[str, Any]]:
        where = self._signature.subgraph_index
        return {name: self._interpreter._details(index, where) for name, index in sorted(pairs)}


def _int32(index: int) -> int:
    """Check an index as LiteRT's bindings do. Raises TypeError for anything but a 32-bit integer."""
    found = operator.index(index)
    if not -(1 << 31) <= found < 1 << 31:
        raise TypeError(f"incompatible function arguments: {index} is no 32-bit integer")
    return found


def _load(
    model_path: str | os.PathLike[str] | None, model_content: bytes | bytearray | memoryview | None
) -> Model:
    if model_path and model_content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if model_content:
        return read_model(model_content)
    if not model_path:
        raise ValueError("`model_path` or `model_content` must be specified.")
    try:
        return load_model(Path(os.fsdecode(model_path)))
    except OSError as error:
        raise ModelFormatError(f"Could not open '{os.fsdecode(model_path)}': {error.strerror}") from error


def _nanoseconds(call: Callable[[], None]) -> int:
    start = perf_counter_ns()
    call()
    return perf_counter_ns() - start


def _run(planned: PlannedSubgraph, times: list[StepTime] | None = None) -> None:
    _invoked(partial(planned.run, times))


def _invoked(call: Callable[[], T]) -> T:
    """Return what a run returns; errors of the model are those of its invocation."""
    try:
        return call()
    # It is an error of the model as well, but tells nothing of its values.
    except OutOfMemoryError:
        raise
    except ModelError as error:
        raise InvocationError(str(error)) from error
