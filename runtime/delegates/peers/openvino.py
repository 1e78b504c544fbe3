"""The descriptor of `openvino`: Intel's OpenVINO runs the whole file on the host's CPU."""

from collections.abc import Mapping
from typing import Final

from runtime.common.installation import install_command, installed_version
from runtime.delegates.descriptor import DelegateDescriptor, HostDevice, Option, threads_option

PRECISIONS: Final = ("fp32", "bf16")


def openvino_version() -> str | None:
    """Return the installed version of OpenVINO; None if it is not installed. Imports nothing."""
    return installed_version("openvino")


def _hosts(_device: HostDevice) -> str | None:
    return None if openvino_version() else f"openvino is not installed: {install_command('openvino')}"


def _environment() -> Mapping[str, str]:
    return {"openvino": openvino_version() or "not installed"}


DESCRIPTOR: Final = DelegateDescriptor(
    name="openvino",
    implementation="runtime.delegates.peers.openvino_delegate:OpenVinoDelegate",
    hosts=_hosts,
    executes=("delegates/peers",),
    packages=("openvino",),
    options={
        "threads": threads_option(),
        "precision": Option(
            value_type=str,
            choices=PRECISIONS,
            default="fp32",
            help="The type in which OpenVINO may compute; its own default is bf16 where the CPU has it.",
        ),
    },
    environment=_environment,
    is_default=False,
)
