"""What a delegate of another package is made of (docs/delegates.md)."""

from runtime.common.stages import stage
from runtime.delegates.base import (
    Array,
    CompiledPartition,
    GraphFacts,
    LoadedModel,
    Partition,
    PartitionDelegate,
    Unsupported,
    WholeModelDelegate,
)
from runtime.delegates.descriptor import DelegateDescriptor, HostDevice, Option, threads_option
from runtime.delegates.partition import DelegationReport
from runtime.delegates.plan import PartitionPlan, Planner
from runtime.delegates.variables import border_refusal
from runtime.errors import (
    DelegateError,
    DeviceError,
    NoDeviceError,
    UnsupportedOperatorError,
    UnsupportedPrecisionError,
)

__all__ = [
    "Array",
    "CompiledPartition",
    "DelegateDescriptor",
    "DelegateError",
    "DelegationReport",
    "DeviceError",
    "GraphFacts",
    "HostDevice",
    "LoadedModel",
    "NoDeviceError",
    "Option",
    "Partition",
    "PartitionDelegate",
    "PartitionPlan",
    "Planner",
    "Unsupported",
    "UnsupportedOperatorError",
    "UnsupportedPrecisionError",
    "WholeModelDelegate",
    "border_refusal",
    "stage",
    "threads_option",
]
