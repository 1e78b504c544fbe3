"""The implementation of `gpu`: opens a device, refuses or compiles partitions, describes its settings."""

import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary, ref

from runtime.common.profile import Peaks
from runtime.delegates.abilities import Conformance, Primed
from runtime.delegates.base import CompiledPartition, Copies, GraphFacts, Partition, Unsupported
from runtime.delegates.descriptor import RECORDING
from runtime.delegates.gpu.alternatives import unit_refusal
from runtime.delegates.gpu.backends.choice import in_the_way, open_backend
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.peaks import measure_peaks
from runtime.delegates.gpu.choose.tuning import Budget
from runtime.delegates.gpu.graph.graph import Custom
from runtime.delegates.gpu.graph.simulation import Quantised, simulated_types
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.keep.cache import cache_folder
from runtime.delegates.gpu.keep.kept_conformance import differences, keep_conformance, kept_conformance
from runtime.delegates.gpu.lowering import families
from runtime.delegates.gpu.offer import Offer, defect
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.delegates.gpu.settings.choices import written
from runtime.delegates.gpu.settings.options import parse_options
from runtime.delegates.gpu.settings.precision import (
    Findings,
    Trial,
    gains_by_integers,
    knowing_bytes,
    knowing_products,
    meaning,
    settled,
)
from runtime.delegates.gpu.start.compiled import CompiledGraph
from runtime.delegates.gpu.start.priming import prime
from runtime.errors import DelegateError, FarmRuntimeError
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator, TensorType

_log = logging.getLogger(__name__)


class GpuDelegate(Offer):
    """Runs operators on a device of the backend that the options name, OpenCL's by default.

    Args:
        options: names and values of `runtime.delegates.gpu.settings.options.Options`; None for the defaults.

    Raises:
        DelegateError: an unknown option or a value that is not allowed, or the device refuses a context.
        UnsupportedPrecisionError: the device cannot do the precision that was asked for.
        DeviceError: no OpenCL platform, or no device of that name.
    """

    planner = GpuPlanner

    @staticmethod
    def preload() -> None:
        """Import the OpenCL binding and all kernel families ahead of time, so that no import is measured.

        Raises `DelegateError` where it cannot be imported.
        """
        try:
            import_module("pyopencl")
        except ImportError as error:
            raise DelegateError(f"gpu delegate: pyopencl cannot be imported: {error}") from error
        families()

    @staticmethod
    def operator_types() -> Mapping[BuiltinOperator | str, tuple[TensorType, ...]]:
        """Operators that have kernels, and the types of first inputs that these take, whatever the device.

        Custom operators stand under their names. Quantised types stand beside float32 where a model that has
        them is computed with real numbers.
        """
        found = {
            kind: [element.tensor_type for family in claims for element in family.types_of(kind).of_input(0)]
            for kind, claims in families().items()
        }
        return {
            kind.value if isinstance(kind, Custom) else kind: tuple(
                dict.fromkeys((*types, *(simulated_types(kind) if TensorType.FLOAT32 in types else ())))
            )
            for kind, types in found.items()
        }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(parse_options(options))
        named = self.options.serialization_dir or self.options.cache_dir
        folder = cache_folder(named, dict(os.environ))
        # Weak: an interpreter that is dropped without `close`, or plans anew, takes its graphs along.
        self._compiled: list[ref[CompiledGraph]] = []
        self._ways: WeakKeyDictionary[CompiledGraph, Quantised] = WeakKeyDictionary()
        self._seen: set[tuple[int, ...]] = set()
        self._backend = open_backend(self.options, folder)
        self._budget = Budget(self.options.tuning)
        self._findings: Findings | None = None
        self._conformance = self.conformance()
        if self.options.conformance == "kept":
            self.excluded |= differences(self._conformance)
        known = self._backend.capabilities
        precision = settled(self.options, known, self._probe)
        self.options = replace(self.options, precision=precision)
        self._backend = self._backend.knowing(knowing_products(known, precision, self._probe))
        # Starting from `known` again drops nothing: for int8 the line above leaves the device as it was.
        if self.way is Quantised.LEVELS:
            self._backend = self._backend.knowing(knowing_bytes(known, self._probe()))

    def _lacking(self, graph: GraphFacts, operator: Operator, way: Quantised) -> Unsupported | None:
        return unit_refusal(graph, operator, self._backend.capabilities, way)

    def _gains_by_integers(self, *, quantises_rows: bool) -> bool:
        known = self._backend.capabilities
        if known.works_in_groups:
            return False
        found = knowing_bytes(known, self._probe())
        if found != known:
            self._backend = self._backend.knowing(found)
        return gains_by_integers(found, quantises_rows=quantises_rows)

    def conformance(self) -> Conformance | None:
        """See `runtime.delegates.conformance.Checkable`."""
        return kept_conformance(self._backend.capabilities, self._backend.cache)

    def keep_conformance(self, found: Conformance) -> None:
        """See `runtime.delegates.conformance.Checkable`."""
        keep_conformance(self._backend.capabilities, self._backend.cache, found)

    def prime(self, name: str, partitions: Iterable[Partition]) -> Primed:
        """See `runtime.delegates.priming.Primable`."""
        if not isinstance(self._backend, OpenClBackend):
            raise DelegateError(f"gpu delegate: the backend {self.options.backend} keeps no kernels")
        return prime(name, partitions, self._backend, self.options, self.way_of_partition)

    def peaks(self) -> Peaks:
        """See `runtime.delegates.abilities.HasPeaks`."""
        if not isinstance(self._backend, OpenClBackend):
            raise DelegateError(f"gpu delegate: the backend {self.options.backend} measures no peaks")
        return measure_peaks(self._backend.opened)

    @property
    def opencl_context(self) -> Any:
        """The `pyopencl.Context` in which the caller's buffers and events must be made; None on WebGPU."""
        return self._backend.opened.context if isinstance(self._backend, OpenClBackend) else None

    def _probe(self) -> Findings:
        """Return the device's behaviour with narrow numbers; probes it once."""
        if self._findings is None:
            self._findings = self._backend.findings()
        return self._findings

    def compile(self, partition: Partition) -> CompiledPartition:
        """Lower, tune, allocate and record a partition.

        Raises `DelegateError` or `DeviceError` with the device's message. A defect of the delegate is one
        too, so that the model still runs on the CPU where that is allowed; its traceback goes to the log.
        """
        try:
            # Of resized inputs, which may be many, the first size alone is worth a file.
            operators = (partition.subgraph.index, *(operator.index for operator in partition.operators))
            way = self.way_of_partition(partition)
            compiled = CompiledGraph(
                partition,
                self._backend,
                self.options,
                way,
                budget=self._budget,
                keeps_constants=operators not in self._seen,
            )
            self._ways[compiled] = way
            # Only where it was compiled: else the next try of these operators keeps its constants.
            self._seen.add(operators)
        except (FarmRuntimeError, MemoryError):
            raise
        except Exception as error:
            _log.exception("gpu delegate: a partition of %d operators", len(partition.operators))
            raise DelegateError(f"gpu delegate: {defect(error)}") from error
        # Less the references to graphs that are gone, of which every resize leaves one.
        self._compiled = [*(known for known in self._compiled if known() is not None), ref(compiled)]
        return compiled

    def _open_graphs(self) -> list[CompiledGraph]:
        """Return the graphs that are still in use, in the order in which they were compiled."""
        graphs = [known() for known in self._compiled]
        return [graph for graph in graphs if graph is not None and not graph.is_closed]

    def _narrow_weights(self) -> str:
        """List the types of weights that lie on the device in fewer than 32 bits, with their bytes."""
        total = Counter[WeightType]()
        for graph in self._open_graphs():
            total.update(graph.narrow_weights)
        return ", ".join(f"{kind.value} {size}" for kind, size in sorted(total.items(), key=str)) or "none"

    @property
    def device_bytes(self) -> int:
        """See `runtime.delegates.base.CountsMemory`."""
        return sum(graph.recording.device_bytes for graph in self._open_graphs())

    @contextmanager
    def awaiting_copies(self) -> Iterator[None]:
        """See `runtime.delegates.base.CountsCopies`."""
        # The same graphs at both ends of the block, whatever is compiled or closed within it.
        graphs = list(self._open_graphs())
        for graph in graphs:
            graph.awaits_copies = True
        try:
            yield
        finally:
            for graph in graphs:
                graph.awaits_copies = False

    @property
    def copies(self) -> Copies | None:
        """See `runtime.delegates.base.CountsCopies`."""
        found = [one for graph in self._open_graphs() if (one := graph.copies) is not None]
        if not found:
            return None
        return Copies(
            sum(one.in_ns for one in found),
            sum(one.out_ns for one in found),
            sum(one.in_bytes for one in found),
            sum(one.out_bytes for one in found),
        )

    def _integer_path(self, *, is_of_integers: bool) -> str:
        """Whether quantised models are computed in integers; empty where none asked for it."""
        if is_of_integers:
            # Only the reference's bits are judged as such.
            return "yes" if self.options.rounding == "reference" else "yes, rounded as by XNNPACK"
        fault = None if self._findings is None else self._findings.faults.get(Trial.INT8_PRODUCTS)
        return f"no: {Trial.INT8_PRODUCTS.title}: {fault}" if self.way is None and fault else ""

    def describe(self) -> Mapping[str, str]:
        """Device, driver and effective settings; once compiled, how the layers are enqueued.

        `choices` is what was chosen by timing, as the option of that name takes it; `disturbed` says why
        rules chose instead, for this start alone; `smaller_tiles` which kernels the device does not run in
        the work-groups that they are made for; `recording` whether it is that of an earlier start, where
        one can be kept.
        """
        device, ways = self._backend.capabilities, {self._ways[graph] for graph in self._open_graphs()}
        is_of_integers = self.way is Quantised.LEVELS or ways == {Quantised.LEVELS}
        fault = self._backend.cache.fault
        choices = written({key: name for graph in self._open_graphs() for key, name in graph.choices.items()})
        disturbed = dict.fromkeys(graph.disturbance for graph in self._open_graphs() if graph.disturbance)
        refused = dict.fromkeys(reason for graph in self._open_graphs() for reason in graph.refused)
        origins = dict.fromkeys(graph.origin for graph in self._open_graphs() if graph.origin)
        return {
            "device": device.name,
            "platform": device.platform,
            "driver": device.driver,
            "backend": self.options.backend,
            f"{self.options.backend}_version": device.version,
            "compute_units": str(device.compute_units),
            "device_class": device.device_class.value,
            "precision": str(self.options.precision),
            "arithmetic": meaning("int8" if is_of_integers else str(self.options.precision), device),
            **({"narrow_numbers": str(self._findings)} if self._findings is not None else {}),
            **({"integer_path": path} if (path := self._integer_path(is_of_integers=is_of_integers)) else {}),
            **({"conformance": str(self._conformance)} if self._conformance is not None else {}),
            **({"left_to_the_cpu": ", ".join(self.excluded)} if self.excluded else {}),
            "weights": self.options.weights,
            "tuning": self.options.tuning,
            **({RECORDING: "; ".join(origins)} if origins else {}),
            "persistent": self.options.persistent,
            "functions": "called by address" if device.shares_one_kernel else "kernels of their own",
            **({"driver_threads": device.driver_threads} if device.driver_threads else {}),
            "schedule": "; ".join(graph.schedule for graph in self._open_graphs()) or "not compiled",
            "constant_bytes": str(sum(graph.recording.constant_bytes for graph in self._open_graphs())),
            **({"choices": choices} if choices else {}),
            **({"disturbed": "; ".join(disturbed)} if disturbed else {}),
            **({"smaller_tiles": "; ".join(refused)} if refused else {}),
            "narrow_weights": self._narrow_weights(),
            **({"in_the_way": found} if (found := in_the_way()) else {}),
            **({"cache": f"not used: {fault}"} if fault else {}),
        }
