"""The descriptor of `litert`: Google's LiteRT runs the whole file on the CPU. Results are compared to it."""

from collections.abc import Mapping
from typing import Final

from runtime.common.installation import install_command, installed_version
from runtime.delegates.descriptor import DelegateDescriptor, HostDevice, Option, OptionValue, threads_option

INTERPRETER_API: Final = "interpreter"
COMPILED_MODEL_API: Final = "compiled_model"

XNNPACK: Final = "xnnpack"
REFERENCE: Final = "reference"
RESOLVERS: Final = (XNNPACK, "builtin", REFERENCE)


def litert_version() -> str | None:
    """Return the installed version of ai-edge-litert; None if it is not installed. Imports nothing."""
    return installed_version("ai-edge-litert")


def _hosts(_device: HostDevice) -> str | None:
    return None if litert_version() else f"ai-edge-litert is not installed: {install_command('peers')}"


_XNNPACK_OPTIONS: Final = {
    "force_fp16": Option(
        value_type=bool, default=False, help="Whether XNNPACK computes in fp16; needs `api: compiled_model`."
    ),
    "latest_operators": Option(
        value_type=bool, default=False, help="Whether XNNPACK takes the operators that are new in it."
    ),
    "slow_consistent_arithmetic": Option(
        value_type=bool,
        default=False,
        help="Whether XNNPACK gives the same results on every processor; needs `api: compiled_model`.",
    ),
    "transient_indirection_buffer": Option(
        value_type=bool,
        default=False,
        help="Whether XNNPACK makes its pointers to pixels anew in every run, to save memory; needs "
        "`api: compiled_model`.",
    ),
}

RELEASE: Final = ("ai-edge-litert", "litert")
"""LiteRT's distribution, and the field of every device with its version (`agent.runner.probe.host`)."""


def version_option() -> Option:
    """Declare the option `version`, which the farm fulfils by what a process imports."""
    return Option(
        value_type=str,
        help="LiteRT's release: the installed one, or one whose wheel the machine's operator allowed.",
    )


_OPTIONS: Final = {
    "threads": threads_option(),
    "version": version_option(),
    "api": Option(
        value_type=str,
        choices=(INTERPRETER_API, COMPILED_MODEL_API),
        default=INTERPRETER_API,
        help="LiteRT's older interface, or that of LiteRT Next.",
    ),
    "resolver": Option(
        value_type=str,
        choices=RESOLVERS,
        default=XNNPACK,
        help="The kernels that LiteRT uses: XNNPACK's, its builtin ones, or its reference ones.",
    ),
    **_XNNPACK_OPTIONS,
}

_OF_BOTH_APIS: Final = ("latest_operators",)
"""Options of XNNPACK that LiteRT's `Interpreter` has in Python, too."""


def settled(given: Mapping[str, OptionValue]) -> Mapping[str, OptionValue] | str:
    """Return the options of one column as they are, or why LiteRT has no such combination."""
    resolver = given.get("resolver", XNNPACK)
    for name, option in _XNNPACK_OPTIONS.items():
        if given.get(name, option.default) == option.default:
            continue
        if resolver != XNNPACK:
            return (
                f"{name} is an option of XNNPACK, which resolver {resolver!r} does not use; leave out one of "
                "the two"
            )
        if given.get("api", INTERPRETER_API) == INTERPRETER_API and name not in _OF_BOTH_APIS:
            return f"LiteRT's Interpreter has no option {name} in Python; use `api: {COMPILED_MODEL_API}`"
    return given


# No environment field of its own: LiteRT makes the references, so its version is a field of every device
# (`agent.runner.probe.host`).
DESCRIPTOR: Final = DelegateDescriptor(
    name="litert",
    implementation="runtime.delegates.peers.litert_delegate:LiteRtDelegate",
    hosts=_hosts,
    executes=("delegates/litert.py", *(f"delegates/peers/{name}.py" for name in (
        "litert_buffers", "litert_delegate", "litert_words", "whole_model",
    ))),
    packages=("ai-edge-litert",),
    release=RELEASE,
    options=_OPTIONS,
    settled=settled,
)  # fmt: skip
