"""The implementation of `litert-gpu`, over `ai_edge_litert.compiled_model.CompiledModel`.

LiteRT says on the standard error output alone which adapter it chose, which operators it leaves to the CPU,
and why it found no GPU. Its accelerator may abort the process: its last words are the end of the log then.
"""

from collections.abc import Mapping
from typing import Any

from runtime.delegates.base import Array, LoadedModel
from runtime.delegates.litert import litert_version
from runtime.delegates.partition import DelegationReport
from runtime.delegates.peers import litert_words
from runtime.delegates.peers.litert_buffers import Buffers, imported, require_version
from runtime.delegates.peers.litert_gpu import DESCRIPTOR, SWITCHES
from runtime.delegates.peers.whole_model import WholeModel
from runtime.errors import DelegateError, FallbackForbiddenError, NoDeviceError, UnsupportedOperatorError
from runtime.model.interface import Interface, load_interface


class LiteRtGpuDelegate:
    """Whole-model delegate over LiteRT's GPU accelerator; operators that it lacks run on LiteRT's CPU path.

    Args:
        options: `precision` (fp32 | fp16), `threads` of the CPU path, `require_full_delegation` and
            `SWITCHES`; None for the defaults.

    Raises:
        DelegateError: an unknown option or value, or LiteRT cannot be imported.
    """

    name = "litert-gpu"

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = DESCRIPTOR.parse(options or {})
        require_version("litert-gpu", self._options["version"])
        imported("litert-gpu", "compiled_model")
        self._adapter = "not known before a model is loaded"

    @staticmethod
    def preload() -> None:
        """Import LiteRT ahead of time, so that the import is not measured. Raises `DelegateError`."""
        for module in ("compiled_model", "hardware_accelerator", "options"):
            imported("litert-gpu", module)

    def load(self, path: str) -> LoadedModel:
        """Load the file on LiteRT's GPU accelerator.

        LiteRT is asked for the GPU alone first, and for GPU and CPU where it then names operators that the
        GPU lacks: alone it proves that the GPU runs everything, as with both the CPU could take over unseen.

        Raises:
            NoDeviceError: LiteRT finds no GPU that it can use.
            FallbackForbiddenError: operators stay on the CPU, and `require_full_delegation` is set.
            UnsupportedOperatorError: the GPU takes no operator, or inputs or outputs of such a type, or
                LiteRT lacks what the model has, such as variables.
            ModelFormatError: the file is broken.
            DelegateError: anything else, with LiteRT's words.
        """
        interface = load_interface(path)
        accelerators = imported("litert-gpu", "hardware_accelerator").HardwareAccelerator
        try:
            model, said = self._create(path, accelerators.GPU)
            report = _full(interface, model)
        except _PartialError as error:
            report = error.report
            if report.delegated_ops == 0:
                # `from None`: `_PartialError` only carries the report to here, and says nothing else.
                raise _with_report(
                    UnsupportedOperatorError(f"litert-gpu: LiteRT: {report}"), report
                ) from None
            if self._options["require_full_delegation"]:
                raise FallbackForbiddenError(f"Disallowed CPU fallback detected.\n{report}", report) from None
            model, said = self._create(path, accelerators.GPU | accelerators.CPU)
        self._adapter = litert_words.adapter_of(said) or "not named by LiteRT"
        return WholeModel("litert-gpu", interface, _Session(model, interface, report))

    def describe(self) -> Mapping[str, str]:
        """Version, adapter as LiteRT names it, the precision that was asked for, threads of the CPU path."""
        return {
            "litert": litert_version() or "unknown",
            "adapter": self._adapter,
            "precision": self._options["precision"],
            "threads": str(self._options["threads"] or "all"),
            **{name: "yes" for name in SWITCHES if self._options[name]},
        }

    def _create(self, path: str, accelerators: Any) -> tuple[Any, str]:
        """Create a model; also return LiteRT's messages. Raises as `load`, and `_PartialError`."""
        options = imported("litert-gpu", "options")
        chosen = options.Options(
            hardware_accelerators=accelerators,
            gpu_options=options.GpuOptions(
                enforce_f32=self._options["precision"] == "fp32",
                **{name: self._options[name] for name in SWITCHES},
            ),
            cpu_options=options.CpuOptions(num_threads=self._options["threads"] or 0),
        )
        # Stays None where `spoken` itself fails, before it hears anything.
        heard = None
        try:
            with litert_words.spoken() as heard:
                model = imported("litert-gpu", "compiled_model").CompiledModel.from_file(path, options=chosen)
        except (RuntimeError, ValueError) as error:
            raise _failure(heard.text if heard else "", str(error), path) from error
        return model, heard.text


class _PartialError(Exception):
    """LiteRT refuses to leave operators to the CPU; the report says which."""

    def __init__(self, report: DelegationReport) -> None:
        super().__init__(str(report))
        self.report = report


class _Session(Buffers):
    """A compiled model with its buffers; see `whole_model.Session`."""

    def __init__(self, model: Any, interface: Interface, delegation: DelegationReport) -> None:
        super().__init__("litert-gpu", model, interface)
        self.delegation = delegation
        self._values: list[Array] = []

    def run(self) -> None:
        """Run, and read the outputs: LiteRT returns from a run before the GPU has ended it."""
        self.write()
        super().run()
        self._values = self.read()

    def output(self, position: int) -> Array:
        """Return an output of the last run."""
        return self._values[position]


def _full(interface: Interface, model: Any) -> DelegationReport:
    """Return the report of a model made for the GPU alone. Raises `DelegateError` if LiteRT denies that."""
    if not model.is_fully_accelerated():
        raise DelegateError("litert-gpu: LiteRT does not report that its GPU accelerator runs every operator")
    return DelegationReport("full", interface.operators, interface.operators, 1, (), title="GPU")


def _failure(said: str, error: str, path: str) -> Exception:
    """Return the error that LiteRT's words stand for."""
    report = litert_words.report_of(said, path)
    if report is not None:
        return _PartialError(report)
    words = "; ".join(litert_words.problems(said, error)) or "it gives no reason"
    if litert_words.found_no_gpu(said):
        return NoDeviceError(f"litert-gpu: LiteRT finds no GPU that it can use: {words}")
    return litert_words.failure("litert-gpu: LiteRT", words, DelegateError)


def _with_report(error: UnsupportedOperatorError, report: DelegationReport) -> UnsupportedOperatorError:
    error.delegation = report
    return error
