"""The declaration of a delegate, read before it is imported: its name, its devices, its options.

The entry points of the group `delegate_farm.delegates` name one `DelegateDescriptor` each. The probe, the
campaign file and the measuring processes read the descriptor; nothing else registers a delegate. A module
that defines one must be cheap to import: it is loaded to list what a host offers and to check a file.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias

from runtime.common.installation import CURRENT, DISTRIBUTION, own_commit
from runtime.errors import DelegateError

Api: TypeAlias = Literal["host", "opencl", "cuda", "webgpu"]
"""How a device is listed: `host` is the CPU of the process itself, `opencl` a device of an OpenCL driver,
`cuda` one of NVIDIA's that no OpenCL driver lists, `webgpu` one that only adapters of WebGPU reach."""

OptionValue: TypeAlias = str | int | float | bool

MOST_THREADS: Final = 1024
"""The largest count of threads that a campaign may ask for. Chosen above the CPUs of any host that we know;
a larger bound would only let a typing error pass the campaign file and fail on the device."""


INTERFACE: Final = "interface"
"""The fact of a device that names the interface through which an attempt reaches it."""

CHOICES: Final = "choices"
"""The option, and the entry of `describe()`, that hold what a delegate chose by timing."""

RECORDING: Final = "recording"
"""The entry of `describe()` that says whether a start bound what an earlier one had prepared: `KEPT`, or why
not."""

KEPT: Final = "kept"

INTERPRETER: Final = (
    "*.py", "api", "common/__init__.py", "common/arena.py", "common/installation.py", "common/stages.py",
    "common/system.py",
    "interpreter", "model", "ops", "plan", "delegates/*.py",
)  # fmt: skip
"""Files and folders of the package `runtime` that run a model which no delegate takes whole. Those of each
delegate's own folder are not among them."""

_DIGITS: Final = 15
"""Significant digits of a bound in a message: as many as a float always preserves. The default of six would
show the bound 1000000 as 1e+06."""


class HostDevice(Protocol):
    """A device of this host as a descriptor sees it."""

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`."""

    @property
    def api(self) -> str:
        """`host`, `opencl`, `cuda` or `webgpu`."""

    @property
    def name(self) -> str:
        """The name that the kernel or the driver gives it."""

    @property
    def vendor(self) -> str:
        """Its manufacturer; empty for the host's CPU."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Facts recorded about it, such as `opencl_index`, its position in the list of OpenCL devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, and the values that a campaign file may give it.

    `value_type`: the type of a value; a float may be a whole number. `choices`: the texts that are
    allowed; empty for any text. `minimum`, `maximum`: inclusive bounds of a number. `default`: the value
    where none is given; None where the delegate or the farm decides when it runs, as `help` then explains.

    Raises `ValueError` for a declaration that contradicts itself.
    """

    value_type: type[str] | type[int] | type[float] | type[bool]
    help: str
    default: OptionValue | None = None
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def __post_init__(self) -> None:
        if self.choices and self.value_type is not str:
            raise ValueError("an option with choices holds a text: value_type must be str")
        if (self.minimum, self.maximum) != (None, None) and self.value_type not in (int, float):
            raise ValueError("an option with bounds holds a number: value_type must be int or float")
        if self.default is not None and (why := self.refusal(self.default)) is not None:
            raise ValueError(f"the default does not fit its own option: {why}")

    @property
    def values(self) -> str:
        """The allowed values in words, for messages and tables."""
        if self.choices:
            return " or ".join(self.choices)
        words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        bounds = (("at least", self.minimum), ("at most", self.maximum))
        given = " and ".join(f"{word} {bound:.{_DIGITS}g}" for word, bound in bounds if bound is not None)
        return f"{words[self.value_type]} {given}".rstrip()

    def refusal(self, value: object) -> str | None:
        """Return None for an allowed value, else what is expected instead."""
        # Python counts a bool among the integers: `threads: true` would pass for 1.
        taken = (int, float) if self.value_type is float else (self.value_type,)
        fits = isinstance(value, taken) and isinstance(value, bool) == (self.value_type is bool)
        if fits and isinstance(value, str):
            fits = not self.choices or value in self.choices
        elif fits and isinstance(value, (int, float)) and self.value_type is not bool:
            # Written so that NaN, which compares with nothing, is outside.
            low = self.minimum is None or value >= self.minimum
            high = self.maximum is None or value <= self.maximum
            fits = low and high and value == value
        return None if fits else f"expected {self.values}, got {value!r}"


def threads_option(default: int | None = None) -> Option:
    """Declare the option `threads`. The farm enforces it by CPU affinity, whatever the delegate does with it.

    `default`: the count of threads where none is given; None for one per CPU that the process may use.
    """
    text = "The number of CPUs that the process may use"
    return Option(
        value_type=int,
        default=default,
        minimum=1,
        maximum=MOST_THREADS,
        help=f"{text}." if default else f"{text}; by default all of them.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateDescriptor:
    """One delegate, described.

    `name`: the delegate kind of campaign files; equal to the name of the entry point. `implementation`: the
    delegate itself as `module:attribute`, a callable that makes a `PartitionDelegate` or `WholeModelDelegate`
    from a mapping of options; it is imported where a model is opened, and None is the interpreter alone.

    `apis`: the lists of devices that are offered to `hosts`, which returns None for a device that the
    delegate runs on and else the reason why it does not.

    `options`: what a campaign may set. `settled`: brings the options of one column, each allowed by itself,
    into the form in which they are kept, or returns why they cannot be measured together. `device_options`:
    what the farm sets from the device that is measured, below any option of the campaign. A delegate that
    declares `threads` receives the threads in force.

    `interfaces`: the interfaces through which the delegate reaches a device, the one first that is taken
    where a campaign's option `backend` names none, each with the fields of results through it. Empty for a
    delegate that has no such choice.

    `environment`: fields, such as package versions, of the results of this delegate: one that was measured
    with other values is not reused. `executes`: files and folders of the package `runtime`, or patterns of
    them, that a run with the delegate executes; their contents are the version `runtime` of its results. A
    partition delegate leaves the default: the interpreter runs the operators that it does not take.

    `release`: the distribution of which the option `version` chooses a release, and the field of results that
    holds it; None for a delegate that has no such choice.

    `packages`: installed distributions that such a run loads besides, numpy apart; their files are a part of
    the delegate's installed bytes, as are those of the package that brings the delegate.

    `integer_path`: the delegate computes quantised
    models in integers throughout, so its outputs are judged by the rule for integer kernels. A delegate for
    which that depends on the model leaves it False, and its `describe()` gives `integer_path: yes`.
    `is_default`: a submission that names no delegates takes it.
    """

    name: str
    implementation: str | None
    apis: tuple[Api, ...] = ("host",)
    hosts: Callable[[HostDevice], str | None] = lambda _device: None
    options: Mapping[str, Option] = field(default_factory=dict)
    settled: Callable[[Mapping[str, OptionValue]], Mapping[str, OptionValue] | str] = lambda given: given
    device_options: Callable[[HostDevice], Mapping[str, OptionValue]] = lambda _device: {}
    interfaces: Callable[[HostDevice], Mapping[str, Mapping[str, str]]] = lambda _device: {}
    environment: Callable[[], Mapping[str, str]] = dict
    executes: tuple[str, ...] = INTERPRETER
    packages: tuple[str, ...] = ()
    release: tuple[str, str] | None = None
    integer_path: bool = False
    is_default: bool = True

    @property
    def takes_threads(self) -> bool:
        """Whether the delegate has an option `threads`, which then holds the threads in force."""
        return "threads" in self.options

    @property
    def tunes(self) -> bool:
        """Whether the delegate chooses by timing, and can be given the choices of an earlier start."""
        return CHOICES in self.options

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every declared option with its given or default value.

        Raises `DelegateError` for an option that is not declared, with the nearest one and all that are, and
        for a value that is not allowed.
        """
        for name, value in given.items():
            if name not in self.options:
                raise DelegateError(f"{self.name}: unknown option {name!r}{self._known(name)}")
            if (why := self.options[name].refusal(value)) is not None:
                raise DelegateError(f"{self.name}: option {name!r}: {why}")
        return {name: given.get(name, option.default) for name, option in self.options.items()}

    def _known(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.options, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return f"{hint}; it takes {', '.join(sorted(self.options)) or 'no options'}"


RELEASE: Final = (DISTRIBUTION, "runtime")
"""This project's distribution, and the field of results with the code that ran."""

VERSION: Final = "version"


def commit_option() -> Option:
    """Declare the option `version`, which the farm fulfils by what a process imports."""
    return Option(
        value_type=str,
        help="The commit of this farm that runs: `current`, or one whose wheel the operator allowed.",
    )


def without_commit(descriptor: DelegateDescriptor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a delegate's options without the commit, which this process has.

    Raises `DelegateError` where it runs another one.
    """
    if descriptor.release != RELEASE:
        return dict(options)
    wanted = options.get(VERSION)
    if wanted not in (None, CURRENT, own_commit()):
        raise DelegateError(
            f"{descriptor.name}: commit {wanted} was asked for, and this process runs "
            f"{own_commit() or CURRENT}; a campaign measures another one, whose wheel the machine's operator "
            "allows (docs/lab.md)"
        )
    return {name: value for name, value in options.items() if name != VERSION}
