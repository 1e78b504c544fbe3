"""LiteRT Next's Python `CompiledModel`: signatures, buffers, synchronous and asynchronous runs."""

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from runtime import errors
from runtime.api import background
from runtime.api.cpu_kernel_mode import CpuKernelMode
from runtime.api.environment import Environment, EnvironmentOptions
from runtime.api.event import Event
from runtime.api.hardware_accelerator import HardwareAccelerator
from runtime.api.options import CpuOptions, GpuOptions, IntelOpenVinoOptions, Options, QualcommOptions
from runtime.api.tensor_buffer import ALIGNMENT, HOST_MEMORY, OPENCL_BUFFER, TensorBuffer
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.partition import DelegationReport
from runtime.delegates.registry import load_delegate
from runtime.delegates.storage import ROOM
from runtime.interpreter.details import check_resize, names, ordered_signatures, public_dtype, tensor_named
from runtime.model.graph import Model, Signature
from runtime.model.reader import load_model, read_model
from runtime.plan.profile import Profiler
from runtime.plan.program import Program, check_operators
from runtime.plan.subgraph import PlannedSubgraph

__all__ = ["CompiledModel", "CpuKernelMode", "CpuOptions", "Environment", "EnvironmentOptions", "GpuOptions"]
__all__ += ["HardwareAccelerator", "IntelOpenVinoOptions", "Options", "QualcommOptions", "TensorBuffer"]


class CompiledModel:
    """A model compiled for the accelerators of its options; also a context manager.

    With `GPU` alone every operator must run there; with `GPU | CPU` the CPU takes the rest, and all of it,
    with a warning, where there is no device. Errors are RuntimeErrors (`StatusError`) with LiteRT's codes.
    `profiler` tells what runs take while it is on.
    """

    def __init__(self, model: Model, environment: Environment, options: Options) -> None:
        self._environment = environment
        self._signatures = ordered_signatures(model)
        self._accelerators = HardwareAccelerator(options.hardware_accelerators)
        context = environment.options.opencl_context
        self._delegates = delegates = _delegates(self._accelerators, options, context)
        self._program: Program | None = Program(
            model, delegates, num_threads=max(1, options.cpu_options.num_threads)
        )
        self.profiler = Profiler()
        self._routes: dict[int, background.Route | None] = {}
        self._lock = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        if delegates:
            self._program.subgraph(self._signatures[0].subgraph_index).analyse()
        check_operators(model, skip_first=bool(delegates))

    @classmethod
    def from_file(
        cls,
        model_path: str | os.PathLike[str],
        hardware_accel: HardwareAccelerator | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
    ) -> "CompiledModel":
        """Compile a file for `hardware_accel`, or for `options`; without either, for one thread of the CPU.

        Raises ValueError where both are given, RuntimeError for a model that cannot be read or run there.
        """
        return cls._compile(partial(_load, Path(model_path)), hardware_accel, environment, options)

    @classmethod
    def from_buffer(
        cls,
        model_data: bytes | bytearray | memoryview,
        hardware_accel: HardwareAccelerator | None = None,
        environment: Environment | None = None,
        options: Options | None = None,
    ) -> "CompiledModel":
        """Compile the bytes of a file as `from_file` compiles a file."""
        return cls._compile(partial(read_model, model_data), hardware_accel, environment, options)

    @classmethod
    def _compile(
        cls,
        read: Callable[[], Model],
        hardware_accel: HardwareAccelerator | None,
        environment: Environment | None,
        options: Options | None,
    ) -> "CompiledModel":
        if hardware_accel is not None and options is not None:
            raise ValueError("Pass either options or hardware_accel, not both.")
        if options is None:
            chosen = HardwareAccelerator.CPU if hardware_accel is None else hardware_accel
            options = Options(chosen, cpu_options=CpuOptions(num_threads=1))
        environment = environment or Environment.create()
        if environment.capsule is None:
            raise ValueError("Environment is no longer valid")
        try:
            return cls(read(), environment, options)
        except errors.ModelError as error:
            raise errors.StatusError(f"Failed to load model: {error}") from error

    @property
    def environment(self) -> Environment:
        """The environment in which the model was compiled."""
        return self._environment

    @property
    def opencl_context(self) -> Any:
        """The `pyopencl.Context` in which buffers and events for this model's runs must be made.

        Raises RuntimeError where no device of OpenCL runs the model.
        """
        for delegate in self._delegates:
            if (context := getattr(delegate, "opencl_context", None)) is not None:
                return context
        raise errors.StatusError("no OpenCL device runs this model: compile it for HardwareAccelerator.GPU")

    @property
    def delegation(self) -> DelegationReport | None:
        """The report on the first signature's operators; None on the CPU alone."""
        return self._planned(0).report

    def is_fully_accelerated(self) -> bool:
        """Return True if no operator fell back from the accelerator that was asked for."""
        if not self._accelerators & HardwareAccelerator.GPU:
            return True
        report = self.delegation
        return report is not None and report.status == "full"

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Names of inputs and outputs by signature, in the subgraph's order."""
        return {s.key: {"inputs": names(s.inputs), "outputs": names(s.outputs)} for s in self._signatures}

    def get_num_signatures(self) -> int:
        """Return the number of signatures; a model without one has a placeholder, which counts."""
        return len(self._signatures)

    def get_signature_by_index(self, index: int) -> dict[str, Any]:
        """`key`, `inputs` and `outputs` of a signature. Raises RuntimeError out of range."""
        signature = self._at(index)
        return {"key": signature.key, "inputs": names(signature.inputs), "outputs": names(signature.outputs)}

    def get_signature_index(self, key: str) -> int:
        """Index of a signature, -1 where there is none of that key."""
        return next((i for i, s in enumerate(self._signatures) if s.key == key), -1)

    def get_input_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """Name, index, dtype and shape by input name. Raises RuntimeError for an unknown signature."""
        index = self._index(signature_key)
        return self._details(index, self._at(index).inputs)

    def get_output_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """Name, index, dtype and shape by output name. Raises RuntimeError for an unknown signature."""
        index = self._index(signature_key)
        # Shapes of outputs follow from the inputs' present ones, once these are planned.
        self._allocated(index)
        return self._details(index, self._at(index).outputs)

    def get_input_buffer_requirements(self, input_index: int, signature_index: int = 0) -> dict[str, Any]:
        """`buffer_size` in bytes and `supported_types`. Raises RuntimeError out of range."""
        return self._requirements("Input", input_index, signature_index)

    def get_output_buffer_requirements(self, output_index: int, signature_index: int = 0) -> dict[str, Any]:
        """`buffer_size` in bytes and `supported_types`. Raises RuntimeError out of range."""
        return self._requirements("Output", output_index, signature_index)

    def create_input_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Create a buffer for each input, in order."""
        return [self._buffer(signature_index, i) for _, i in self._at(signature_index).inputs]

    def create_output_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Create a buffer for each output, in order."""
        return [self._buffer(signature_index, i) for _, i in self._at(signature_index).outputs]

    def create_input_buffer_by_name(self, signature_key: str, input_name: str) -> TensorBuffer:
        """Create a buffer for one input. Raises RuntimeError for unknown names."""
        index = self._index(signature_key)
        return self._buffer(index, tensor_named("Input", self._at(index).inputs, input_name))

    def create_output_buffer_by_name(self, signature_key: str, output_name: str) -> TensorBuffer:
        """Create a buffer for one output. Raises RuntimeError for unknown names."""
        index = self._index(signature_key)
        return self._buffer(index, tensor_named("Output", self._at(index).outputs, output_name))

    def resize_input_tensor(
        self, input_index: int, dims: Sequence[int], signature_index: int = 0, strict: bool = True
    ) -> None:
        """Give an input another shape; `strict` changes unknown dimensions only. Make new buffers after it.

        Raises RuntimeError for a shape that the model does not allow.
        """
        tensor = self._pair("Input", input_index, signature_index)[1]
        size = tuple(int(d) for d in dims)
        if any(d < 1 for d in size):
            raise errors.StatusError("Dimensions must be positive.", errors.INVALID_ARGUMENT)
        planned = self._planned(signature_index)
        before = planned.shape(tensor)
        with self._lock:
            try:
                check_resize(planned.subgraph.tensors[tensor], before, size, strict=strict)
            except RuntimeError as error:
                raise errors.StatusError(
                    f"New shape is not compatible with current shape. {error}", errors.INVALID_ARGUMENT
                ) from error
            planned.resize(tensor, size)

    def resize_input_tensor_by_name(
        self, signature_key: str, input_name: str, dims: Sequence[int], strict: bool = True
    ) -> None:
        """Resize an input as `resize_input_tensor` does. Raises ValueError for unknown names."""
        index = self.get_signature_index(signature_key)
        if index < 0:
            raise ValueError(f"Unknown signature: {signature_key}")
        known = names(self._at(index).inputs)
        if input_name not in known:
            raise ValueError(f"Unknown input '{input_name}' for signature '{signature_key}'")
        self.resize_input_tensor(known.index(input_name), dims, index, strict)

    def run_by_index(
        self,
        signature_index: int,
        input_buffers: Sequence[TensorBuffer],
        output_buffers: Sequence[TensorBuffer],
    ) -> None:
        """Run a signature. Raises RuntimeError for buffers that do not fit and values that cannot be used."""
        self._check_buffers(signature_index, input_buffers, output_buffers)
        if route := self._route(signature_index):
            event = route.start(input_buffers, output_buffers)
            if route.partition.waits:
                # Its error is raised here, and must not come a second time from who reads the output.
                for buffer in output_buffers:
                    buffer.event = None
                event.wait()
            return
        for buffer in (*input_buffers, *output_buffers):
            buffer.wait()
        for reader in background.uses(output_buffers):
            reader.wait_in_any_case()
        self._run(signature_index, input_buffers, output_buffers)

    def run_by_name(
        self,
        signature_key: str,
        input_map: Mapping[str, TensorBuffer],
        output_map: Mapping[str, TensorBuffer],
    ) -> None:
        """Run a signature with buffers by name. Raises RuntimeError as `run_by_index`."""
        index = self._index(signature_key)
        signature = self._at(index)
        inputs = [background.buffer_named("input", input_map, name) for name, _ in signature.inputs]
        outputs = [background.buffer_named("output", output_map, name) for name, _ in signature.outputs]
        self.run_by_index(index, inputs, outputs)

    def run_async(
        self,
        input_buffers: Sequence[TensorBuffer],
        output_buffers: Sequence[TensorBuffer],
        signature_index: int = 0,
    ) -> Event:
        """Start a run and return at once; runs of a model follow one another.

        A model that a device runs whole is enqueued there, on the buffers' own memory where its kernels can
        use it (`Event.copies`); else the run is on a thread of the model's own. It begins when the events of
        the inputs have come, for which the device itself waits. Each output carries the event, so that
        reading it, or a run with it as an input, waits as well. `Event.wait` raises the run's error.

        Raises RuntimeError for buffers and events that a device cannot use: nothing is started then.
        """
        self._check_buffers(signature_index, input_buffers, output_buffers)
        if route := self._route(signature_index):
            return route.start(input_buffers, output_buffers)
        after, behind = background.fillings(input_buffers), background.uses(output_buffers)
        event = Event()
        # Views carry no event: the worker's own copies would wait for the run that they belong to.
        inputs = [buffer.view() for buffer in input_buffers]
        outputs = [buffer.view() for buffer in output_buffers]
        background.attach(event, input_buffers, output_buffers)
        if self._worker is None:
            # One thread: runs share the plan's memory, and their order is that of the calls.
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="compiled-model")
        self._worker.submit(self._run_later, after, behind, event, signature_index, inputs, outputs)
        return event

    def _route(self, signature_index: int) -> background.Route | None:
        """Return the route by which a delegate runs the whole signature in the background, or None."""
        if not self._delegates or self.profiler.is_profiling:
            return None
        signature = self._at(signature_index)
        with self._lock:
            planned = self._allocated(signature_index)
            known = self._routes.get(signature_index)
            # A resize makes another execution, whose partitions are others.
            if known is None or known.execution is not planned.execution:
                known = self._routes[signature_index] = background.route_of(planned, signature)
            return known

    def _run_later(
        self,
        after: Sequence[Event],
        behind: Sequence[Event],
        event: Event,
        signature_index: int,
        inputs: Sequence[TensorBuffer],
        outputs: Sequence[TensorBuffer],
    ) -> None:
        try:
            # Those only use the outputs' memory: that one of them failed is no error of this run.
            for other in behind:
                other.wait_in_any_case()
            for needed in after:
                needed.wait()
            self._run(signature_index, inputs, outputs)
        except Exception as error:  # noqa: BLE001  # whoever waits gets it
            event.signal(error)
        else:
            event.signal()

    def _run(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> None:
        signature = self._at(signature_index)
        with self._lock:
            planned = self._allocated(signature_index)
            for (name, index), buffer in zip(signature.inputs, inputs, strict=True):
                background.copy_in(background.memory_of(planned, index), buffer, name)
            try:
                planned.run(self.profiler.noting(planned.subgraph))
            except errors.ModelError as error:
                raise errors.StatusError(
                    f"Failed to invoke the compiled model: {error}", errors.RUNTIME_FAILURE
                ) from error
            for (name, index), buffer in zip(signature.outputs, outputs, strict=True):
                background.copy_out(background.memory_of(planned, index), buffer, name)

    def close(self) -> None:
        """Finish the runs that were started, and release all memory. Later calls raise RuntimeError."""
        if self._worker is not None:
            # First: its runs work on the program's memory.
            self._worker.shutdown(wait=True)
        if self._program is not None:
            self._program.close()
        self._program = self._worker = None

    def __enter__(self) -> "CompiledModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _at(self, index: int) -> Signature:
        if self._program is None:
            raise errors.StatusError("the model is closed", errors.RUNTIME_FAILURE)
        if not 0 <= index < len(self._signatures):
            raise errors.StatusError("Signature index is out of range of signature keys", errors.OUT_OF_RANGE)
        return self._signatures[index]

    def _index(self, key: str) -> int:
        index = self.get_signature_index(key)
        if index < 0:
            raise errors.StatusError(f"Signature not found: {key}", errors.NOT_FOUND)
        return index

    def _planned(self, signature_index: int) -> PlannedSubgraph:
        signature = self._at(signature_index)
        # `_at` raises for a closed model.
        assert self._program is not None
        return self._program.subgraph(signature.subgraph_index)

    def _allocated(self, signature_index: int) -> PlannedSubgraph:
        planned = self._planned(signature_index)
        try:
            planned.allocate()
        except (errors.ModelError, errors.DelegateError) as error:
            raise errors.StatusError(str(error), errors.RUNTIME_FAILURE) from error
        return planned

    def _pair(self, kind: str, place: int, signature_index: int) -> tuple[str, int]:
        signature = self._at(signature_index)
        pairs = signature.inputs if kind == "Input" else signature.outputs
        if not 0 <= place < len(pairs):
            raise errors.StatusError(f"{kind} index out of range", errors.OUT_OF_RANGE)
        return pairs[place]

    def _details(self, signature_index: int, pairs: Sequence[tuple[str, int]]) -> dict[str, Any]:
        planned = self._planned(signature_index)
        return {
            name: {
                "name": planned.subgraph.tensors[i].name,
                "index": i,
                "dtype": np.dtype(public_dtype(planned.subgraph.tensors[i])).name,
                "shape": list(planned.shape(i)),
            }
            for name, i in pairs
        }

    def _requirements(self, kind: str, place: int, signature_index: int) -> dict[str, Any]:
        _, tensor = self._pair(kind, place, signature_index)
        size = self._buffer(signature_index, tensor).size
        if self._route(signature_index) is None:
            return {"buffer_size": size, "supported_types": [HOST_MEMORY]}
        return {
            "buffer_size": size,
            "supported_types": [OPENCL_BUFFER, HOST_MEMORY],
            "alignment": ALIGNMENT,
            # Kernels reach behind the tensor: a smaller buffer is copied.
            "zero_copy_size": size + ROOM,
        }

    def _buffer(self, signature_index: int, index: int) -> TensorBuffer:
        planned = self._allocated(signature_index)
        tensor = planned.subgraph.tensors[index]
        return TensorBuffer.create_managed(background.buffer_dtype(tensor), planned.shape(index))

    def _check_buffers(
        self, signature_index: int, inputs: Sequence[TensorBuffer], outputs: Sequence[TensorBuffer]
    ) -> None:
        signature = self._at(signature_index)
        for kind, pairs, buffers in (
            ("Input", signature.inputs, inputs),
            ("Output", signature.outputs, outputs),
        ):
            if len(pairs) != len(buffers):
                raise errors.StatusError(
                    f"Failed to invoke the compiled model: {kind} buffer size mismatch: number of "
                    f"{kind.lower()}s:{len(pairs)} vs buffers:{len(buffers)}",
                    errors.RUNTIME_FAILURE,
                )


def _load(path: Path) -> Model:
    try:
        return load_model(path)
    except OSError as error:
        raise errors.StatusError(f"Failed to load model from file {path}: {error.strerror}") from error


def _delegates(
    accelerators: HardwareAccelerator, options: Options, context: object
) -> tuple[PartitionDelegate, ...]:
    """Return the accelerators' delegate: none for the CPU alone, or if it may replace an absent GPU."""
    if not accelerators:
        raise errors.StatusError("No acceleration provided.")
    if accelerators & HardwareAccelerator.NPU:
        raise errors.StatusError("no NPU: this runtime drives CPUs and OpenCL devices only")
    if not accelerators & HardwareAccelerator.GPU:
        return ()
    alone = not accelerators & HardwareAccelerator.CPU
    chosen = {"require_full_delegation": alone, **options.gpu_options.for_delegate()}
    if context is not None:
        chosen["context"] = context
    try:
        delegate = load_delegate("gpu", chosen)
    except (errors.DeviceError, errors.DelegateError) as error:
        absent = isinstance(error, errors.DeviceError) or isinstance(error.__cause__, ImportError)
        # The CPU replaces what is absent; a wrong option must not turn into a slow run.
        if alone or not absent:
            raise
        # The fifth frame is the caller of "from_file".
        warnings.warn(f"no GPU, the CPU runs the model: {error}", RuntimeWarning, stacklevel=5)
        return ()
    assert isinstance(delegate, PartitionDelegate)
    return (delegate,)
