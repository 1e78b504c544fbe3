"""The implementation of `gpu`: opens a device, refuses or compiles partitions, describes its settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any
from weakref import ref

from runtime.delegates.base import CompiledPartition, GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import refusal
from runtime.delegates.gpu.cache import cache_folder
from runtime.delegates.gpu.compiled import CompiledGraph
from runtime.delegates.gpu.cost import OperatorCosts
from runtime.delegates.gpu.graph import Custom
from runtime.delegates.gpu.lowering import families
from runtime.delegates.gpu.options import Options, parse_options
from runtime.delegates.gpu.precision import Findings, Trial, settled
from runtime.delegates.gpu.simulation import Quantised, simulated_types
from runtime.errors import DelegateError, FarmRuntimeError
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator, TensorType

_log = logging.getLogger(__name__)


class GpuDelegate:
    """Runs operators on a device of the OpenCL backend.

    Args:
        options: names and values of `runtime.delegates.gpu.options.Options`; None for the defaults.

    Raises:
        DelegateError: an unknown option or a value that is not allowed, or the device refuses a context.
        UnsupportedPrecisionError: the device cannot do the precision that was asked for.
        DeviceError: no OpenCL platform, or no device of that name.
    """

    name = "gpu"
    title = "GPU"

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
        self.options: Options = parse_options(options)
        self.max_delegated_partitions = self.options.max_delegated_partitions
        self.min_nodes_per_partition = self.options.min_nodes_per_partition
        self.cost_model = OperatorCosts() if self.options.weighs_costs else None
        self.require_full_delegation = self.options.require_full_delegation
        named = self.options.serialization_dir or self.options.cache_dir
        folder = cache_folder(named, dict(os.environ))
        # Weak: an interpreter that is dropped without `close`, or plans anew, takes its graphs along.
        self._compiled: list[ref[CompiledGraph]] = []
        self._seen: set[tuple[int, ...]] = set()
        self._backend = OpenClBackend.open(self.options.device, folder, self.options.threads)
        self._findings: Findings | None = None
        precision = settled(self.options, self._backend.capabilities.name, self._probe)
        self.options = replace(self.options, precision=precision)
        if precision == "bf16" and self._probe().passed(Trial.BF16_PRODUCTS):
            self._backend = self._backend.multiplying_bf16()
        self._way = Quantised.LEVELS if precision == "int8" else Quantised.REAL
        if not self.options.enable_quantization:
            self._way = Quantised.LEFT
        if self._way is Quantised.LEVELS and self._probe().passed(Trial.INT8_PRODUCTS):
            self._backend = self._backend.multiplying_bytes()

    def _probe(self) -> Findings:
        """What the device does with narrow numbers; asked once."""
        if self._findings is None:
            self._findings = self._backend.findings()
        return self._findings

    def supports(self, graph: GraphFacts, operator: Operator) -> Unsupported | None:
        """None where a kernel runs the operator; else the reason, which may be a defect of the delegate."""
        first, last = self.options.first_delegate_node_index, self.options.last_delegate_node_index
        if operator.index < first or (last is not None and operator.index > last):
            end = "the end" if last is None else str(last)
            return Unsupported(f"operator {operator.index} is not among those to delegate, {first} to {end}")
        try:
            return refusal(graph, operator, self._way)
        except Exception as error:  # noqa: BLE001  # a model must not fail for what the CPU can run
            _log.exception("gpu delegate: operator %d %s", operator.index, operator.name)
            return Unsupported(_defect(error))

    def compile(self, partition: Partition) -> CompiledPartition:
        """Lower, tune, allocate and record a partition.

        Raises `DelegateError` or `DeviceError` with the device's message. A defect of the delegate is one
        too, so that the model still runs on the CPU where that is allowed; its traceback goes to the log.
        """
        try:
            # Of resized inputs, which may be many, the first size alone is worth a file.
            operators = (partition.subgraph.index, *(operator.index for operator in partition.operators))
            compiled = CompiledGraph(
                partition, self._backend, self.options, self._way, keeps_constants=operators not in self._seen
            )
            self._seen.add(operators)
        except (FarmRuntimeError, MemoryError):
            raise
        except Exception as error:
            _log.exception("gpu delegate: a partition of %d operators", len(partition.operators))
            raise DelegateError(f"gpu delegate: {_defect(error)}") from error
        self._compiled = [*(known for known in self._compiled if known() is not None), ref(compiled)]
        return compiled

    def _open_graphs(self) -> list[CompiledGraph]:
        """The graphs that somebody still uses, in the order in which they were compiled."""
        graphs = [known() for known in self._compiled]
        return [graph for graph in graphs if graph is not None and not graph.is_closed]

    def describe(self) -> Mapping[str, str]:
        """Device, driver and effective settings; once compiled, how the layers are enqueued."""
        device = self._backend.capabilities
        fault = self._backend.cache.fault
        return {
            "device": device.name,
            "platform": device.platform,
            "driver": device.driver,
            "opencl_version": device.version,
            "compute_units": str(device.compute_units),
            "precision": str(self.options.precision),
            **({"narrow_numbers": str(self._findings)} if self._findings is not None else {}),
            **({"integer_path": "yes"} if self._way is Quantised.LEVELS else {}),
            "weights": self.options.weights,
            "tuning": self.options.tuning,
            "persistent": self.options.persistent,
            "functions": "called by address" if device.shares_one_kernel else "kernels of their own",
            "schedule": "; ".join(graph.schedule for graph in self._open_graphs()) or "not compiled",
            "constant_bytes": str(sum(graph.recording.constant_bytes for graph in self._open_graphs())),
            **({"cache": f"not used: {fault}"} if fault else {}),
        }


def _defect(error: Exception) -> str:
    what = " ".join(str(error).split())
    return f"a defect of the delegate, please report it with the model: {type(error).__name__}: {what}"
