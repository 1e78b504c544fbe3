"""The delegate as a planner: it partitions like the delegate, and plans instead of compiling."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.delegates.base import CompiledPartition, GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.alternatives import unit_refusal
from runtime.delegates.gpu.backends.choice import describe_device
from runtime.delegates.gpu.backends.opencl.device import bounded
from runtime.delegates.gpu.backends.opencl.precision_probe import kept_findings
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.choose.kept_choices import KeptChoices
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.keep.cache import Cache, cache_folder, open_cache
from runtime.delegates.gpu.keep.kept_conformance import differences, kept_conformance
from runtime.delegates.gpu.offer import Offer, defect
from runtime.delegates.gpu.planning.assumed import ASSUMED, resident_threads
from runtime.delegates.gpu.planning.partition import plan_partition
from runtime.delegates.gpu.settings.options import Options, parse_options
from runtime.delegates.gpu.settings.precision import (
    STORED,
    gains_by_integers,
    knowing_bytes,
    knowing_products,
    meaning,
    settled,
)
from runtime.delegates.plan import DeviceClass, PartitionPlan, PlannedDevice
from runtime.errors import DelegateError, DeviceError, FarmRuntimeError
from runtime.model.graph import Operator

_NO_DEVICE = "no OpenCL device was found"


class GpuPlanner(Offer):
    """Plans for this machine's device, or for an assumed one of a class. Nothing is compiled or timed.

    Without a class, and where OpenCL has no device at all, the CPU class is assumed, and the plan says so.

    Raises:
        DelegateError: an option that is not allowed, or kept times are asked for where no device has any.
        DeviceError: the option `device` names none that there is.
    """

    def __init__(
        self, options: Mapping[str, Any], device_class: DeviceClass | None = None, *, is_tuned: bool = False
    ) -> None:
        super().__init__(parse_options(options))
        capabilities, note = _device(self.options, device_class)
        is_assumed = device_class is not None or bool(note)
        if is_tuned and is_assumed:
            raise DelegateError(
                "gpu delegate: kept times belong to a device of this machine, and the plan is for an assumed "
                "one; leave out the device class, or the tuned choice"
            )
        cache = _cache(self.options)
        findings = None if is_assumed else kept_findings(capabilities, cache)
        if not is_assumed and self.options.conformance == "kept":
            self.excluded |= differences(kept_conformance(capabilities, cache))
        if findings is None and self.options.precision not in (None, "fp32"):
            note = "; ".join(filter(None, (note, "what it does with narrow numbers was never probed")))
        found = STORED if findings is None else findings
        precision = settled(self.options, capabilities, lambda: found)
        self.options = replace(self.options, precision=precision)
        known = knowing_bytes(capabilities, found)
        self._capabilities = knowing_products(known, precision, lambda: found)
        self._kept = KeptChoices.of(self._capabilities, cache, self.options) if is_tuned else None
        self.device = PlannedDevice(
            name=capabilities.name,
            device_class="gpu" if capabilities.works_in_groups else "cpu",
            is_assumed=is_assumed,
            compute_units=capabilities.compute_units,
            resident_threads=resident_threads(capabilities) if capabilities.is_gpu else 0,
            note=note,
        )

    def _lacking(self, graph: GraphFacts, operator: Operator, way: Quantised) -> Unsupported | None:
        return unit_refusal(graph, operator, self._capabilities, way)

    def _gains_by_integers(self, *, quantises_rows: bool) -> bool:
        return gains_by_integers(self._capabilities, quantises_rows=quantises_rows)

    def plan(self, partition: Partition) -> PartitionPlan:
        """See `runtime.delegates.plan.Planner`."""
        try:
            return plan_partition(
                partition, self._capabilities, self.options, self.way_of_partition(partition), self._kept
            )
        # MemoryError tells of this machine, and is no defect of the delegate, as what follows is.
        except (FarmRuntimeError, MemoryError):
            raise
        except Exception as error:
            raise DelegateError(f"gpu delegate: {defect(error)}") from error

    def compile(self, partition: Partition) -> CompiledPartition:
        """Raise `DelegateError`: a planner runs nothing."""
        raise DelegateError(
            f"gpu delegate: a plan of {len(partition.operators)} operators cannot run; open the model with "
            "the delegate itself"
        )

    def describe(self) -> Mapping[str, str]:
        """Return the device and the settings of the plan."""
        return {
            "device": self.device.name,
            "precision": str(self.options.precision),
            "arithmetic": meaning(str(self.options.precision), self._capabilities),
            "weights": self.options.weights,
            "tuning": self.options.tuning,
        }


def _device(options: Options, device_class: DeviceClass | None) -> tuple[Capabilities, str]:
    """Return the device to plan for, and why it had to be assumed."""
    if device_class is not None:
        return bounded(ASSUMED[device_class], options.threads), ""
    try:
        return describe_device(options), ""
    except (DeviceError, ImportError) as error:
        # Whoever names a device or an interface does not want an assumed one.
        if options.device is not None or options.backend != "opencl":
            raise
        return bounded(ASSUMED["cpu"], options.threads), f"{_NO_DEVICE} ({error})"


def _cache(options: Options) -> Cache:
    return open_cache(cache_folder(options.serialization_dir or options.cache_dir, dict(os.environ)))
