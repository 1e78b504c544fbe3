"""The delegate's options, parsed once and strictly from the mapping that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from runtime.errors import DelegateError

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
_LOSSY = frozenset({"fp16", "bf16"})
_ALIASES = {"is_precision_loss_allowed": "precision_loss_allowed"}
WEIGHTS = ("stored", "float32")
TUNING_EFFORTS = ("none", "fast", "exhaustive")
PERSISTENT_MODES = ("auto", "off", "on")


@dataclass(frozen=True, slots=True)
class Options:
    """Effective options.

    - `device`: an index into the list of OpenCL devices, or a part of a device's or platform's name. None
      chooses a GPU where there is one, else a CPU device.
    - `precision`: "fp32", or "fp16" or "bf16": weights are rounded to that type (`precision.py` says what
      else); or "int8": quantised tensors stay integers, and operators on them that have integer kernels give
      the bits of the CPU path; the others stay there. None is fp32, except as `precision_loss_allowed` says.
    - `precision_loss_allowed`: false forbids fp16 and bf16; true chooses fp16 where `precision` is not given
      and the device can store it. LiteRT's name `is_precision_loss_allowed` is accepted too.
    - `weights`: "stored" keeps fp16 and integer weights as the file has them and widens them in registers;
      "float32" widens them once, to the same numbers, in two to eight times the memory.
    - `threads`: most work-groups that run at the same time on a CPU device; None for all it has.
    - `tuning`: "none" relies on the cost models, "fast" measures the heaviest nodes, "exhaustive" every node.
    - `persistent`: "auto" measures whether persistent kernels beat enqueued ones, "off" and "on" decide it.
      It applies to PoCL's CPU devices only.
    - `cache_dir`: the folder of kernels, tuning results and packed weights. None stands for `FARM_CACHE_DIR`
      or the user's cache directory, "" keeps nothing.
    - `serialization_dir`: LiteRT's name of the same folder; only one of the two may be given.
    - `model_token`: a text that is this model's own, under which its packed weights are kept. None computes
      one from the model's bytes, once for each state of its file.
    - `max_delegated_partitions`: most partitions of a graph, the largest ones.
    - `min_nodes_per_partition`: fewest operators of a partition; smaller ones stay on the CPU.
    - `cost_aware_partitioning`: operators that would cost more in transfers and further runs than they save
      stay on the CPU, as far as shapes tell. A model that is taken whole always stays whole, and operators
      chosen by the two options that follow are all delegated.
    - `first_delegate_node_index`, `last_delegate_node_index`: operators before the first and behind the last,
      counted as in the file, stay on the CPU; None: up to the end. They narrow down a faulty operator.
    - `require_full_delegation`: an operator that would stay on the CPU is an error.
    - `enable_quantization`: operators on quantised tensors are delegated too, and computed with the real
      numbers that their integers stand for, rounded as the integers are, or, in int8, with the integers.
    """

    device: str | int | None = None
    precision: str | None = None
    precision_loss_allowed: bool | None = None
    weights: str = "stored"
    threads: int | None = None
    tuning: str = "fast"
    persistent: str = "auto"
    cache_dir: str | None = None
    serialization_dir: str | None = None
    model_token: str | None = None
    max_delegated_partitions: int = 1
    min_nodes_per_partition: int = 1
    cost_aware_partitioning: bool = True
    first_delegate_node_index: int = 0
    last_delegate_node_index: int | None = None
    require_full_delegation: bool = False
    enable_quantization: bool = True

    @property
    def weighs_costs(self) -> bool:
        """Whether costs decide: not within a window, whose operators somebody has chosen, nor where one
        on the CPU is an error, whose text names those alone that cannot be delegated.
        """
        chosen = self.first_delegate_node_index > 0 or self.last_delegate_node_index is not None
        return self.cost_aware_partitioning and not chosen and not self.require_full_delegation


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DelegateError(f"gpu delegate: option {name!r} must be a text, got {value!r}")
    return value


def _word(name: str, value: Any) -> str:
    if not _text(name, value):
        raise DelegateError(f"gpu delegate: option {name!r} must not be empty")
    return str(value)


def _at_least(least: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if isinstance(value, bool) or number < least or str(number) != str(value):
            raise DelegateError(
                f"gpu delegate: option {name!r} must be a whole number of at least {least}, got {value!r}"
            )
        return number

    return parse


def _flag(name: str, value: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in known:
        raise DelegateError(f"gpu delegate: option {name!r} must be true or false, got {value!r}")
    return known[str(value).lower()]


def _choice(*allowed: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        if value not in allowed:
            raise DelegateError(
                f"gpu delegate: option {name!r} must be one of {', '.join(allowed)}; got {value!r}"
            )
        return str(value)

    return parse


def _device(name: str, value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DelegateError(
            f"gpu delegate: option {name!r} must be a device's name, id or index, got {value!r}"
        )
    return int(value) if isinstance(value, str) and value.isdecimal() else value


_PARSERS: dict[str, Callable[[str, Any], Any]] = {
    "device": _device,
    "precision": _choice(*PRECISIONS),
    "precision_loss_allowed": _flag,
    "weights": _choice(*WEIGHTS),
    "threads": _at_least(1),
    "tuning": _choice(*TUNING_EFFORTS),
    "persistent": _choice(*PERSISTENT_MODES),
    "cache_dir": _text,
    "serialization_dir": _word,
    "model_token": _word,
    "max_delegated_partitions": _at_least(1),
    "min_nodes_per_partition": _at_least(1),
    "cost_aware_partitioning": _flag,
    "first_delegate_node_index": _at_least(0),
    "last_delegate_node_index": _at_least(0),
    "require_full_delegation": _flag,
    "enable_quantization": _flag,
}


def parse_options(given: Mapping[str, Any] | None) -> Options:
    """Options from a mapping of names to values (texts are accepted for numbers and flags).

    Raises:
        DelegateError: an unknown name (with the nearest known one), a value that is not allowed, or a lossy
            precision where losses are forbidden.
    """
    known = {field.name for field in fields(Options)}
    parsed: dict[str, Any] = {}
    for alias, value in (given or {}).items():
        name = _ALIASES.get(alias, alias)
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise DelegateError(f"gpu delegate: unknown option {name!r}; {hint}")
        if value is not None:
            parsed[name] = _PARSERS[name](name, value)
    options = Options(**parsed)
    if options.precision in _LOSSY and options.precision_loss_allowed is False:
        raise DelegateError(
            f"gpu delegate: precision {options.precision!r} rounds weights, which "
            "precision_loss_allowed=false forbids; leave out one of the two"
        )
    if options.cache_dir is not None and options.serialization_dir is not None:
        raise DelegateError(
            "gpu delegate: the options 'cache_dir' and 'serialization_dir' name one folder; give one of them"
        )
    return options
