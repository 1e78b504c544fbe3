"""A model that is ready to run under one setting."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from runtime.delegates.base import Array
from runtime.delegates.descriptor import OptionValue
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import FarmRuntimeError
from runtime.judge.agreement import OutputFacts
from runtime.measure.inputs import InputRule, check_names, normal_values, value_range
from runtime.measure.loading import Opener, output_facts

_BOOLEANS: Final[Mapping[str, bool]] = {
    "true": True,
    "yes": True,
    "1": True,
    "false": False,
    "no": False,
    "0": False,
}
"""Spellings of an option that is true or false."""

_NUMBERS: Final = "fiub"
"""Kinds of numpy's types whose values have a difference."""

Detail = Mapping[str, Any]
"""An input, as LiteRT's `get_input_details` describes it: `name`, `shape`, `dtype`, `quantization`."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A delegate and its options."""

    kind: str
    options: Mapping[str, Any]

    @classmethod
    def of(cls, kind: str, texts: Mapping[str, str | int]) -> "Setting":
        """Read options as a command line gives them. Raises `DelegateError` for what is not declared."""
        descriptor = delegate_descriptor(kind)
        options = {
            name: _typed(descriptor.options[name].value_type, str(text))
            if name in descriptor.options
            else text
            for name, text in texts.items()
        }
        descriptor.parse(options)
        return cls(kind, options)


def _typed(value_type: type, text: str) -> OptionValue:
    """Return the value that a text stands for, or the text itself, which the declaration then refuses."""
    if value_type is bool:
        return _BOOLEANS.get(text.lower(), text)
    try:
        return int(text) if value_type is int else float(text) if value_type is float else text
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Ran:
    """The outputs of the last of several invokes on one input set, and the whole microseconds of each."""

    outputs: tuple[Array, ...]
    times_us: tuple[int, ...]


class Running(Protocol):
    """A model, opened. `settings` are complete after the first run."""

    inputs: Sequence[Detail]
    facts: Sequence[OutputFacts]
    settings: Mapping[str, str]

    def run(self, feeds: Sequence[Array], invokes: int) -> Ran:
        """Feed the model once, and invoke it so many times."""

    def close(self) -> None:
        """Free what it holds."""


class LocalModel:
    """A model in this process."""

    def __init__(self, setting: Setting, path: Path, rules: Mapping[str, InputRule]) -> None:
        """Open it. Raises what `Opener` raises; `FarmRuntimeError` for outputs that are no numbers."""
        self._opened = Opener.prepare(setting.kind, setting.options).open(str(path), rules)
        self._model: Any = self._opened.model
        for detail in self._model.get_output_details():
            if np.dtype(detail["dtype"]).kind not in _NUMBERS:
                raise FarmRuntimeError(f"output {str(detail['name'])!r} holds no numbers to compare")
        self.inputs: Sequence[Detail] = self._model.get_input_details()
        self.facts: Sequence[OutputFacts] = output_facts(self._model)
        self.settings: Mapping[str, str] = dict(self._opened.describe())

    def run(self, feeds: Sequence[Array], invokes: int) -> Ran:
        """Feed the model once, and invoke it so many times; the invokes alone are timed, as LiteRT does."""
        for detail, value in zip(self.inputs, feeds, strict=True):
            self._model.set_tensor(detail["index"], value)
        times = []
        for _ in range(invokes):
            begin = time.perf_counter_ns()
            self._model.invoke()
            times.append((time.perf_counter_ns() - begin) // 1000)
        # A copy: some runtimes return their own memory, which the next invoke overwrites.
        outputs = tuple(
            np.array(self._model.get_tensor(d["index"])) for d in self._model.get_output_details()
        )
        self.settings = dict(self._opened.describe())
        return Ran(outputs, tuple(times))

    def close(self) -> None:
        """Free what it holds."""
        # LiteRT's interpreter has none.
        close = getattr(self._model, "close", None)
        if close is not None:
            close()


class GaussianInputs:
    """Draws input sets, one after the other; the same seed gives the same ones."""

    def __init__(
        self, details: Sequence[Mapping[str, Any]], rules: Mapping[str, InputRule], seed: int
    ) -> None:
        """Look up the range of each input. Raises `InputSpecNeededError`."""
        check_names(details, rules)
        self._inputs = [
            (
                np.dtype(detail["dtype"]),
                tuple(int(n) for n in detail["shape"]),
                value_range(detail, rules.get(str(detail["name"]), InputRule())),
            )
            for detail in details
        ]
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self) -> tuple[Array, ...]:
        """Return the next input set."""
        return tuple(normal_values(self._generator, *one) for one in self._inputs)
