"""The descriptor of `litert-gpu`: LiteRT's own GPU accelerator, reached through its `CompiledModel`."""

from pathlib import Path
from typing import Final

from runtime.common.installation import install_command
from runtime.delegates.descriptor import DelegateDescriptor, HostDevice, Option, threads_option
from runtime.delegates.litert import RELEASE, litert_version, version_option

PRECISIONS: Final = ("fp32", "fp16")

SWITCHES: Final = {
    "constant_tensor_sharing": "Whether the GPU keeps constants once for several subgraphs.",
    "infinite_float_capping": "Whether infinite constants become the largest finite numbers.",
    "benchmark_mode": "Whether LiteRT prepares its GPU for benchmarks.",
    "allow_src_quantized_fc_conv_ops": "Whether FULLY_CONNECTED and CONV_2D may quantise their inputs.",
    "hint_waiting_for_completion": "Whether LiteRT expects that each run is waited for.",
}
"""Options that LiteRT's `GpuOptions` has by the same names; all are off by default."""

_GPU_NODES: Final = ("dri/renderD*", "nvidia[0-9]*", "kfd")
"""Files of `/dev` that the driver of a GPU makes."""


def _hosts(device: HostDevice) -> str | None:
    """Return why LiteRT's accelerator does not run on a device, or None for a GPU that OpenCL lists, and for
    the host without a GPU, as a driver may pretend to be one on the CPU.

    LiteRT chooses its adapter itself. On a host with a GPU a result for the host's CPU would be that GPU's.
    """
    if litert_version() is None:
        return f"ai-edge-litert is not installed: {install_command('peers')}"
    if device.api == "opencl":
        return (
            None if device.kind == "gpu" else "LiteRT's GPU accelerator does not use OpenCL devices of a CPU"
        )
    if any(next(Path("/dev").glob(pattern), None) is not None for pattern in _GPU_NODES):
        return "this host has a GPU, where LiteRT would run: install its OpenCL driver, by which it is listed"
    return None


DESCRIPTOR: Final = DelegateDescriptor(
    name="litert-gpu",
    implementation="runtime.delegates.peers.litert_gpu_delegate:LiteRtGpuDelegate",
    apis=("opencl", "host"),
    hosts=_hosts,
    executes=("delegates/peers",),
    packages=("ai-edge-litert",),
    release=RELEASE,
    options={
        "threads": threads_option(),
        "version": version_option(),
        "precision": Option(
            value_type=str,
            choices=PRECISIONS,
            default="fp32",
            help="The type in which the GPU computes; LiteRT's own default is fp16.",
        ),
        "require_full_delegation": Option(
            value_type=bool,
            default=False,
            help="Whether a model with an operator that LiteRT leaves to the CPU is refused.",
        ),
        **{name: Option(value_type=bool, default=False, help=text) for name, text in SWITCHES.items()},
    },
    is_default=False,
)
