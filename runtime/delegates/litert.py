"""The `litert` delegate: Google's LiteRT runs the whole file. Results are compared with it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from runtime.common.installation import install_command
from runtime.common.litert_errors import cause_of
from runtime.delegates.descriptor import DelegateDescriptor, HostDevice, Option, threads_option
from runtime.errors import DelegateError, ModelFormatError, OutOfMemoryError, UnsupportedOperatorError

if TYPE_CHECKING:
    from runtime.delegates.base import LoadedModel
    from runtime.delegates.plan import Planner

Resolver = Literal["xnnpack", "builtin", "reference"]
RESOLVERS: Final[tuple[Resolver, ...]] = get_args(Resolver)
_RESOLVER_TYPES: Final[dict[Resolver, str]] = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""Names in `ai_edge_litert.interpreter.OpResolverType`."""

_NO_MEMORY: Final = "LiteRT: out of memory for the model's tensors; measure a smaller model or input"
_MISSING_OPERATOR = re.compile(r"unresolved custom op|Didn't find op|not supported", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LiteRtOptions:
    """`threads`: size of LiteRT's pool. `resolver`: XNNPACK, builtin kernels, or reference kernels."""

    threads: int
    resolver: Resolver = RESOLVERS[0]

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> LiteRtOptions:
        """Check the options; by default a thread for each usable CPU. Raises `DelegateError`."""
        unknown = sorted(set(options) - {"threads", "resolver"})
        if unknown:
            raise DelegateError(f"litert: unknown option {unknown[0]!r}; it takes threads and resolver")
        threads = options.get("threads", len(os.sched_getaffinity(0)))
        if isinstance(threads, bool) or not str(threads).isdigit() or int(threads) < 1:
            raise DelegateError(f"litert: threads must be an integer of at least 1, got {threads!r}")
        resolver = options.get("resolver", RESOLVERS[0])
        if resolver not in RESOLVERS:
            raise DelegateError(f"litert: resolver must be one of {', '.join(RESOLVERS)}, got {resolver!r}")
        return cls(int(threads), resolver)


def litert_version() -> str | None:
    """Return the installed version of ai-edge-litert; None if it is not installed. Imports nothing."""
    try:
        return version("ai-edge-litert")
    except PackageNotFoundError:
        return None


def _hosts(_device: HostDevice) -> str | None:
    return None if litert_version() else f"ai-edge-litert is not installed: {install_command('peers')}"


# No environment field of its own: LiteRT makes the references, so its version is a field of every device
# (`agent.runner.probe.host`).
DESCRIPTOR: Final = DelegateDescriptor(
    name="litert",
    implementation="runtime.delegates.litert:LiteRtDelegate",
    hosts=_hosts,
    executes=("delegates/litert.py",),
    packages=("ai-edge-litert",),
    options={
        "threads": threads_option(),
        "resolver": Option(
            value_type=str,
            choices=RESOLVERS,
            default=RESOLVERS[0],
            help="The kernels that LiteRT uses: XNNPACK's, its builtin ones, or its reference ones.",
        ),
    },
)


class LiteRtDelegate:
    """Whole-model delegate over `ai_edge_litert.interpreter.Interpreter`."""

    name = "litert"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """Options: `threads` (1..n), `resolver` (xnnpack | builtin | reference). Raises `DelegateError`."""
        self.options = LiteRtOptions.parse(options or {})
        self._litert = _import_litert()

    @staticmethod
    def planner(
        _options: Mapping[str, Any], _device_class: str | None = None, *, is_tuned: bool = False
    ) -> Planner:
        """Raise `DelegateError`: LiteRT has no interface that tells one."""
        del is_tuned
        raise DelegateError(
            "litert: LiteRT tells no plan of what its delegates do with a model; its logs and profiler name "
            "operators and delegate nodes while it runs"
        )

    @staticmethod
    def preload() -> None:
        """Import LiteRT ahead of time, so that the import is not measured. Raises `DelegateError`."""
        _import_litert()

    def load(self, path: str) -> LoadedModel:
        """LiteRT's own interpreter, allocated.

        Raises `ModelFormatError` where LiteRT rejects the file, `UnsupportedOperatorError` where it lacks
        an operator, `OutOfMemoryError` where its tensors find no memory, `DelegateError` for anything else,
        with LiteRT's own words where it has any.
        """
        resolver = getattr(self._litert.OpResolverType, _RESOLVER_TYPES[self.options.resolver])
        try:
            interpreter = self._litert.Interpreter(
                model_path=path,
                num_threads=self.options.threads,
                experimental_op_resolver_type=resolver,
            )
        except (ValueError, RuntimeError) as error:
            raise _mapped(error, ModelFormatError) from error
        try:
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            # LiteRT names every cause but one: an allocation that fails leaves its error without a text.
            if not str(error).strip():
                raise OutOfMemoryError(_NO_MEMORY) from error
            raise _mapped(error, DelegateError) from error
        return cast("LoadedModel", interpreter)  # same methods; the package has no types

    def describe(self) -> Mapping[str, str]:
        """Version, resolver and threads."""
        return {
            "litert": litert_version() or "unknown",
            "resolver": self.options.resolver,
            "threads": str(self.options.threads),
            "precision": "fp32",
        }


def _import_litert() -> ModuleType:
    try:
        from ai_edge_litert import interpreter  # noqa: PLC0415  # optional, and heavy
    except ImportError as error:
        fix = install_command("peers")
        raise DelegateError(f"litert: ai-edge-litert cannot be imported ({error}); {fix}") from error
    return cast(ModuleType, interpreter)


def _mapped(error: Exception, otherwise: type[ModelFormatError | DelegateError]) -> Exception:
    text = " ".join(str(error).split()) or f"{type(error).__name__} without a reason"
    kind = UnsupportedOperatorError if _MISSING_OPERATOR.search(text) else otherwise
    return kind(f"LiteRT: {cause_of(text)}")
