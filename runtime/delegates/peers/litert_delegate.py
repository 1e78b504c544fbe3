"""The implementation of `litert`, over LiteRT's `Interpreter` and its `CompiledModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from runtime.common.system import usable_cpus
from runtime.delegates.base import Array
from runtime.delegates.litert import COMPILED_MODEL_API, DESCRIPTOR, XNNPACK, litert_version, settled
from runtime.delegates.peers.litert_buffers import Buffers, imported, one_line, require_version
from runtime.delegates.peers.litert_words import failure, problems, spoken
from runtime.delegates.peers.whole_model import WholeModel
from runtime.errors import DelegateError, FarmRuntimeError, ModelFormatError, OutOfMemoryError
from runtime.model.interface import Interface, load_interface

if TYPE_CHECKING:
    from runtime.delegates.base import LoadedModel
    from runtime.delegates.plan import Planner

_RESOLVER_TYPES: Final = {
    "xnnpack": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}
"""Names in `ai_edge_litert.interpreter.OpResolverType`; those of `CpuKernelMode` are these in capitals."""

_QUANTIZED: Final = 0x3
"""XNNPACK's flags for operators on int8 and uint8, which LiteRT sets by default
(`TFLITE_XNNPACK_DELEGATE_FLAG_QS8` and `_QU8` of its `xnnpack_delegate.h`)."""

_FLAGS: Final = {
    "force_fp16": 0x4,
    "transient_indirection_buffer": 0x20,
    "latest_operators": 0x40,
    "slow_consistent_arithmetic": 0x200,
}
"""Further flags of the same file, by our options."""

_NO_MEMORY: Final = "LiteRT: out of memory for the model's tensors; measure a smaller model or input"
_COMPILED_MODULES: Final = ("compiled_model", "cpu_kernel_mode", "hardware_accelerator", "options")


class LiteRtDelegate:
    """Whole-model delegate over LiteRT on the CPU.

    Args:
        options: as `DESCRIPTOR` declares them; None for the defaults: the `Interpreter` with XNNPACK, and a
            thread for each CPU that this process may use.

    Raises:
        DelegateError: an unknown option or value, options that LiteRT does not have together, or LiteRT
            cannot be imported.
    """

    name = "litert"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = DESCRIPTOR.parse(options or {})
        if isinstance(why := settled(options or {}), str):
            raise DelegateError(f"litert: {why}")
        require_version("litert", self.options["version"])
        self.options["threads"] = self.options["threads"] or len(usable_cpus())
        self._settings: dict[str, str] = {}
        self.preload()

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
        imported("litert", "interpreter")
        with suppress(DelegateError):  # an older LiteRT lacks them, which its compiled model alone needs
            for module in _COMPILED_MODULES:
                imported("litert", module)

    def load(self, path: str) -> LoadedModel:
        """LiteRT's own interpreter, allocated, or its compiled model.

        Raises `ModelFormatError` where LiteRT rejects the file, `UnsupportedOperatorError` where it lacks
        an operator, `OutOfMemoryError` where its tensors find no memory, `DelegateError` for anything else,
        with LiteRT's own words where it has any.
        """
        if self.options["api"] == COMPILED_MODEL_API:
            return self._compiled(path)
        return self._interpreter(path)

    def describe(self) -> Mapping[str, str]:
        """Version, interface, resolver, threads, precision, and the options of XNNPACK that are in force."""
        asked = {name: "yes" for name in _FLAGS if self.options[name]}
        shown = ("api", "resolver", "threads")
        return {
            "litert": litert_version() or "unknown",
            **{name: str(self.options[name]) for name in shown},
            "precision": "fp16" if self.options["force_fp16"] else "fp32",
            **asked,
            **self._settings,
        }

    def _interpreter(self, path: str) -> LoadedModel:
        litert = imported("litert", "interpreter")
        resolver = litert.OpResolverType[_RESOLVER_TYPES[self.options["resolver"]]]
        try:
            interpreter = litert.Interpreter(
                model_path=path,
                num_threads=self.options["threads"],
                experimental_op_resolver_type=resolver,
                experimental_default_delegate_latest_features=self.options["latest_operators"],
            )
        except (ValueError, RuntimeError) as error:
            raise _failure(error, ModelFormatError) from error
        try:
            interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            # LiteRT names every cause but one: an allocation that fails leaves its error without a text.
            if not str(error).strip():
                raise OutOfMemoryError(_NO_MEMORY) from error
            raise _failure(error, DelegateError) from error
        return cast("LoadedModel", interpreter)  # same methods; the package has no types

    def _compiled(self, path: str) -> LoadedModel:
        compiled, kernels, hardware, options = (imported("litert", module) for module in _COMPILED_MODULES)
        interface, resolver = load_interface(path), self.options["resolver"]
        chosen = options.Options(
            hardware_accelerators=hardware.HardwareAccelerator.CPU,
            cpu_options=options.CpuOptions(
                num_threads=self.options["threads"],
                kernel_mode=kernels.CpuKernelMode[resolver.upper()],
                xnnpack_flags=self._flags(),
            ),
        )
        heard = None
        try:
            with spoken() as heard:
                model = compiled.CompiledModel.from_file(path, options=chosen)
        except (RuntimeError, ValueError) as error:
            # `spoken` itself may fail before it has heard anything.
            words = problems(heard.text if heard else "", str(error))
            raise failure("LiteRT", "; ".join(words) or one_line(error), DelegateError) from error
        if resolver == XNNPACK:
            whole = model.is_fully_accelerated()
            self._settings = {"xnnpack": "every operator" if whole else "not every operator"}
        return _CompiledModel(interface, _Session("litert", model, interface))

    def _flags(self) -> int | None:
        """Return XNNPACK's flags; None for LiteRT's own."""
        asked = sum(flag for name, flag in _FLAGS.items() if self.options[name])
        # Flags replace LiteRT's defaults, so these must be among them.
        return asked | _QUANTIZED if asked else None


class _Session(Buffers):
    """A compiled model on the CPU; see `whole_model.Session`. A run is LiteRT's alone, as the interpreter's:
    inputs are written when they are set, outputs read when they are asked for.
    """

    delegation = None

    def prepare(self, inputs: Sequence[Array]) -> None:
        """See `whole_model.Session`."""
        super().prepare(inputs)
        self.write()

    def output(self, position: int) -> Array:
        """Return an output of the last run."""
        return self.read()[position]


class _CompiledModel(WholeModel):
    """LiteRT's compiled model, whose inputs lie in LiteRT's buffers."""

    def __init__(self, interface: Interface, session: _Session) -> None:
        self._buffers = session
        self._order = [tensor.index for tensor in interface.inputs]
        super().__init__("litert", interface, session)

    def set_tensor(self, tensor_index: int, value: Array) -> None:
        """See `WholeModel.set_tensor`."""
        super().set_tensor(tensor_index, value)
        self._buffers.write(self._order.index(tensor_index))


def _failure(error: Exception, otherwise: type[FarmRuntimeError]) -> FarmRuntimeError:
    return failure("LiteRT", one_line(error), otherwise)
