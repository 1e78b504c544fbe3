"""Open a model for measuring, on the interpreter, a partition delegate, or a peer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from runtime.delegates.base import LoadedModel, PartitionDelegate, WholeModelDelegate
from runtime.delegates.descriptor import without_commit
from runtime.delegates.registry import DelegateFactory, delegate_descriptor, delegate_factory
from runtime.errors import DelegateError, DeviceLostError
from runtime.judge.agreement import OutputFacts
from runtime.measure.inputs import InputPool, InputRule, check_names, make_pool


@dataclass(frozen=True, slots=True)
class Opened:
    """A model ready to invoke. `delegation` is the report of the interpreter, or of a peer that makes one.

    `describe()` gives the effective settings; what a delegate chooses while it runs is known afterwards.
    `kind` is the name of the `delegate`, which is None for the interpreter alone.
    """

    model: LoadedModel
    delegation: Any | None
    describe: Callable[[], Mapping[str, str]]
    kind: str
    delegate: PartitionDelegate | WholeModelDelegate | None = None


class NotDelegatedError(DelegateError):
    """The delegate accepted no operator, so the CPU would run the model. `delegation` is the report."""

    def __init__(self, kind: str, delegation: Any) -> None:
        super().__init__(f"{kind} accepted none of the model's {delegation.total_ops} operators")
        self.delegation = delegation


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens models on one delegate. Making it imports everything that `open` needs."""

    kind: str
    options: Mapping[str, Any]
    factory: DelegateFactory | None
    further: Sequence[PartitionDelegate] = ()

    @classmethod
    def prepare(
        cls, kind: str, options: Mapping[str, Any], further: Sequence[PartitionDelegate] = ()
    ) -> "Opener":
        """Import the interpreter or the delegate; load nothing. Raises `DelegateError`.

        A delegate class may have a `preload()` that imports what it otherwise imports on demand. `further`
        delegates choose, each in its turn, from the operators that the ones before them left.
        """
        descriptor = delegate_descriptor(kind)
        options, factory = without_commit(descriptor, options), delegate_factory(descriptor)
        # A delegate with `load` runs whole models, without the interpreter.
        if not hasattr(factory, "load"):
            import_module("runtime.api.interpreter")
        preload = getattr(factory, "preload", None)
        if preload is not None:
            preload()
        if further and (factory is None or hasattr(factory, "load")):
            raise DelegateError(f"{kind} leaves no operators to other delegates; name it last")
        return cls(kind, options, factory, tuple(further))

    def open(self, path: str, rules: Mapping[str, InputRule] | None = None) -> Opened:
        """Make the delegate, load `path`, resize inputs where a rule says so, allocate.

        Raises what the runtime raises: `ModelFormatError`, `UnsupportedOperatorError`, `DelegateError`;
        `NotDelegatedError` where a partition delegate accepted no operator, `DeviceLostError`.
        """
        rules = rules or {}
        delegate = None if self.factory is None else self.factory(self.options)
        if isinstance(delegate, WholeModelDelegate):
            model: Any = delegate.load(path)
            _resize(model, rules)
            report = getattr(model, "delegation", None)
            return Opened(model, report, delegate.describe, self.kind, delegate)
        from runtime.api.interpreter import Interpreter  # noqa: PLC0415  # imported by `prepare`

        model = Interpreter(
            model_path=path,
            experimental_delegates=None if delegate is None else [delegate, *self.further],
            num_threads=None if delegate else self.options.get("threads"),
        )
        if not _resize(model, rules):
            model.allocate_tensors()
        if delegate is None:
            return Opened(model, None, lambda: {"precision": "fp32"}, self.kind)
        lost = next((failure for failure in model.delegation.failures if failure.is_device_lost), None)
        if lost is not None:
            # The CPU would run the model, but what was asked for is a result of the device.
            raise DeviceLostError(lost.reason)
        if model.delegation.delegated_ops == 0:
            raise NotDelegatedError(self.kind, model.delegation)
        return Opened(model, model.delegation, delegate.describe, self.kind, delegate)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to measure: the file, the delegate that opens it, and what its inputs are made from."""

    opener: Opener
    path: str
    sha256: str
    rules: Mapping[str, InputRule] | None = None

    def open(self) -> Opened:
        """Open the model. Raises what `Opener.open` raises."""
        return self.opener.open(self.path, self.rules)

    def pool(self, model: LoadedModel) -> InputPool:
        """Return the inputs of the opened model. Raises what `make_pool` raises."""
        return make_pool(model.get_input_details(), self.sha256, self.rules)


def _resize(model: Any, rules: Mapping[str, InputRule]) -> bool:
    """Resize and allocate where a rule gives a shape; True if it did. `model`: LiteRT's Interpreter API."""
    details = model.get_input_details()
    check_names(details, rules)
    resized = False
    for detail in details:
        rule = rules.get(str(detail["name"]))
        if rule is not None and rule.shape is not None:
            model.resize_tensor_input(detail["index"], list(rule.shape))
            resized = True
    if resized:
        model.allocate_tensors()
    return resized


def output_facts(model: LoadedModel) -> tuple[OutputFacts, ...]:
    """Names and quantisation of a model's outputs."""
    return tuple(
        OutputFacts(str(d["name"]), float(d["quantization"][0]), int(d["quantization"][1]))
        for d in model.get_output_details()
    )
