"""The GPU delegate: partitions of a model as a recorded list of kernels on one device.

Importing the package gives the descriptor alone: to list `gpu` loads neither numpy nor pyopencl.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from runtime.delegates.descriptor import (
    INTERPRETER,
    DelegateDescriptor,
    HostDevice,
    Option,
    OptionValue,
    threads_option,
)
from runtime.delegates.gpu.settings.options import (
    DEVICE_CLASSES,
    MEMORY,
    PERSISTENT_MODES,
    PRECISIONS,
    TUNING_EFFORTS,
    WEIGHTS,
    Options,
)

__all__ = ["DESCRIPTOR"]

MOST_PARTITIONS: Final = 10_000
"""The largest `max_delegated_partitions` of a campaign file. Chosen far above the partitions that a model of
a few thousand operators can have; a larger bound would allow nothing more."""

MOST_MILLISECONDS: Final = 3_600_000
"""The largest `deadline_ms` of a campaign file, in milliseconds: an hour. Chosen above the time limit of any
attempt; a larger bound would only let a typing error pass."""

MOST_OPERATORS: Final = 1_000_000
"""The largest index of an operator in a campaign file. Chosen far above the operators of any model."""


_WRONG_OPERATORS_FACT: Final = "opencl_wrong_operators"
"""The fact of a device that names the operators which a check found to differ from the CPU path there."""


def _environment() -> Mapping[str, str]:
    """Return the binding's version. The driver's fields belong to the device, whichever delegate runs
    there.
    """
    try:
        return {"pyopencl": version("pyopencl")}
    except PackageNotFoundError:
        return {"pyopencl": "not installed"}


def _device_options(device: HostDevice) -> Mapping[str, OptionValue]:
    """Return the index that names the device: two devices of one host may share everything else.

    A run that is measured has a cache of its own, so that what a check found comes with the device.
    """
    wrong = device.facts.get(_WRONG_OPERATORS_FACT, "")
    return {"device": int(device.facts["opencl_index"])} | ({"excluded_operators": wrong} if wrong else {})


_DEFAULTS = Options()

DESCRIPTOR: Final = DelegateDescriptor(
    name="gpu",
    implementation="runtime.delegates.gpu.delegate:GpuDelegate",
    apis=("opencl",),
    # `backend`, `device` and `cache_dir` are chosen by the farm, which no campaign may set, and so is what a
    # check found of the device; a context lives in one process, a run that is measured is waited
    # for, and its inputs have one shape.
    options={
        "threads": threads_option(),
        "device_class": Option(
            value_type=str,
            choices=DEVICE_CLASSES,
            default=_DEFAULTS.device_class,
            help="Which kernels the device gets, for tests and plans; `auto` decides by its type.",
        ),
        "precision": Option(
            value_type=str,
            choices=PRECISIONS,
            default=_DEFAULTS.precision,
            help="fp16, bf16: weights are rounded, activations lie in fp32; int8: quantised models in "
            "integers; the default is fp32.",
        ),
        "precision_loss_allowed": Option(
            value_type=bool,
            default=_DEFAULTS.precision_loss_allowed,
            help="False forbids fp16 and bf16; true chooses fp16 where no precision is given.",
        ),
        "weights": Option(
            value_type=str,
            choices=WEIGHTS,
            default=_DEFAULTS.weights,
            help="Whether narrow weights stay in memory as the file has them; they are the same numbers.",
        ),
        "tuning": Option(
            value_type=str,
            choices=TUNING_EFFORTS,
            default=_DEFAULTS.tuning,
            help="How thoroughly kernel variants are timed before the first run; `none` decides by rules.",
        ),
        "choices": Option(
            value_type=str,
            default=_DEFAULTS.choices,
            help="What a result's tuning chose, to be used again: then nothing is timed.",
        ),
        "persistent": Option(
            value_type=str,
            choices=PERSISTENT_MODES,
            default=_DEFAULTS.persistent,
            help="Whether a CPU device runs many layers in one kernel; `auto`: unless there is a deadline.",
        ),
        "memory": Option(
            value_type=str,
            choices=MEMORY,
            default=_DEFAULTS.memory,
            help="`least` chooses the kernels that need the fewest bytes, whatever time they take.",
        ),
        "passes_off": Option(
            value_type=str,
            default=_DEFAULTS.passes_off,
            help="Passes over the graph that are not run, with commas between them, to see what they do.",
        ),
        "deadline_ms": Option(
            value_type=int,
            minimum=1,
            maximum=MOST_MILLISECONDS,
            default=_DEFAULTS.deadline_ms,
            help="The most milliseconds of a run, looked at between enqueues; by default there is no limit.",
        ),
        "max_delegated_partitions": Option(
            value_type=int,
            minimum=1,
            maximum=MOST_PARTITIONS,
            default=_DEFAULTS.max_delegated_partitions,
            help="How many partitions of a model the delegate may run; the largest are kept.",
        ),
        "min_nodes_per_partition": Option(
            value_type=int,
            minimum=1,
            maximum=MOST_PARTITIONS,
            default=_DEFAULTS.min_nodes_per_partition,
            help="The fewest operators of a partition; smaller ones stay on the CPU.",
        ),
        "cost_aware_partitioning": Option(
            value_type=bool,
            default=_DEFAULTS.cost_aware_partitioning,
            help="Whether operators stay on the CPU that would cost more in transfers than they save.",
        ),
        "first_delegate_node_index": Option(
            value_type=int,
            minimum=0,
            maximum=MOST_OPERATORS,
            default=_DEFAULTS.first_delegate_node_index,
            help="The first operator, counted as in the file, that may be delegated.",
        ),
        "last_delegate_node_index": Option(
            value_type=int,
            minimum=0,
            maximum=MOST_OPERATORS,
            default=_DEFAULTS.last_delegate_node_index,
            help="The last operator that may be delegated; by default the model's last.",
        ),
        "require_full_delegation": Option(
            value_type=bool,
            default=_DEFAULTS.require_full_delegation,
            help="Whether a model with an operator that stays on the CPU is refused.",
        ),
        "enable_quantization": Option(
            value_type=bool,
            default=_DEFAULTS.enable_quantization,
            help="Whether operators on quantised tensors are delegated: real numbers, or as precision says.",
        ),
    },
    device_options=_device_options,
    environment=_environment,
    executes=(*INTERPRETER, "common/durable.py", "common/installation.py", "delegates/gpu"),
    packages=("pyopencl",),
)
