"""The inputs of a measurement: a pool of K sets, the same for every delegate of a model.

Values are the user's own, or seeded: all sets are noise but the last, which holds a picture or a sound where
an input has the shape of one.
"""

import hashlib
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from runtime.delegates.base import Array
from runtime.errors import FarmRuntimeError
from runtime.measure.natural import natural
from runtime.model.graph import Subgraph
from runtime.model.integer_inputs import integer_ranges

POOL_VERSION = "inputs-2"
"""Part of every seed. A change of the rules below raises it, so that old references are not compared with new
inputs."""

POOL_SIZE = 4
"""Input sets of a pool. Chosen: more than one shows a delegate that returns stale outputs; each set costs
memory and one more run of the reference."""

_MEAN: Final = 0.5
"""Mean of Gaussian values, as a share of an input's range: LiteRT's."""

_DEVIATION: Final = 1 / 3
"""Standard deviation of Gaussian values, as a share of an input's range: LiteRT's. What falls outside of the
range, some 13 of 100, is drawn again."""

_INDEX_LIKE = (np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.uint32), np.dtype(np.uint64))


class InputSpecNeededError(FarmRuntimeError, ValueError):
    """An input needs a rule before it can be filled; the text says which input and what to write."""


@dataclass(frozen=True, slots=True)
class StoredValues:
    """A `.npy` file with samples of an input: [samples, *shape] of its type. `sha256` is that of the file."""

    path: str
    sha256: str

    def samples(self, detail: Mapping[str, Any]) -> Array:
        """Return the samples. Raises `InputSpecNeededError` where they do not fit the input."""
        try:
            found: Array = np.load(self.path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputSpecNeededError(f"data of input {detail['name']!r}: {error}") from error
        shape = tuple(int(n) for n in detail["shape"])
        if found.dtype != np.dtype(detail["dtype"]) or found.shape[1:] != shape or not len(found):
            raise InputSpecNeededError(
                f"data of input {detail['name']!r} is {found.dtype} {list(found.shape[1:])}; the input is "
                f"{np.dtype(detail['dtype'])} {list(shape)}"
            )
        return found


@dataclass(frozen=True, slots=True)
class InputRule:
    """The way to fill one input: `shape` resizes it; values lie in [low, high) (integers: low..high).

    A `normal` distribution has the middle of this range as its mean and a third of it as its standard
    deviation; what lies outside is drawn again. `stored` values stand in place of random ones.
    """

    shape: tuple[int, ...] | None = None
    seed: int = 0
    low: float | None = None
    high: float | None = None
    distribution: Literal["uniform", "normal"] = "uniform"
    stored: StoredValues | None = None

    def stated(self) -> dict[str, Any]:
        """Return everything that the values depend on, without what has its default."""
        # Keys of references are made of these: a field that is added
        # later leaves the keys of rules without it.
        found = {name: value for name, value in asdict(self).items() if value != getattr(_DEFAULT, name)}
        return found | ({} if self.stored is None else {"stored": self.stored.sha256})


_DEFAULT: Final = InputRule()


class InputRules(dict[str, InputRule]):
    """Rules by the names of inputs, and how many sets of inputs a pool has."""

    def __init__(self, rules: Mapping[str, InputRule], sets: int = POOL_SIZE) -> None:
        super().__init__(rules)
        self.sets = sets


def sets_of(rules: Mapping[str, InputRule] | None) -> int:
    """Return how many sets of inputs a pool by these rules has."""
    return rules.sets if isinstance(rules, InputRules) else POOL_SIZE


def ranged(rules: Mapping[str, InputRule], graph: Subgraph) -> dict[str, InputRule]:
    """Return the rules with a range for each integer input whose use in the graph tells one."""
    found = dict(rules)
    for name, (low, high) in integer_ranges(graph).items():
        rule = rules.get(name, _DEFAULT)
        if rule.low is None and rule.high is None:
            found[name] = replace(rule, low=low, high=high)
    return found


@dataclass(frozen=True, slots=True)
class InputPool:
    """`sets[k][i]` is the value of input i (order of the model) in set k. `sha256` covers all bytes."""

    sets: tuple[tuple[Array, ...], ...]
    sha256: str

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for values in self.sets for array in values)


def make_pool(
    details: Sequence[Mapping[str, Any]], model_sha256: str, rules: Mapping[str, InputRule] | None = None
) -> InputPool:
    """Make the inputs for a model with these `get_input_details`.

    Floats are uniform in [-1, 1), quantised and 8/16-bit integers span their whole type, bools are true in
    half of the cases; a rule's `low`/`high` replace the range. Floats and quantised inputs of the last set
    are natural ones within the same range, where the shape is that of a picture or of a sound and no other
    distribution is asked for. Stored samples are taken in turn; where all inputs have one sample alone, it is
    shifted in all sets but the first, because a verdict needs outputs that differ. PCG64 is
    seeded from the model's sha256, the pool's version, the input's name and the rule's seed, so the values do
    not depend on the delegate.

    Raises `InputSpecNeededError` for integers that may be indices, for strings, and for unknown names.
    """
    rules = rules or {}
    check_names(details, rules)
    count = sets_of(rules)
    columns = [_column(d, model_sha256, rules.get(str(d["name"]), _DEFAULT), count) for d in details]
    if all(one.distinct == 1 for one in columns):
        columns = [replace(one, values=list(_shifted(one.values))) for one in columns]
    sets = tuple(tuple(column.values[k] for column in columns) for k in range(count))
    digest = hashlib.sha256()
    for values in sets:
        for array in values:
            # Type and shape as well: equal bytes may be other inputs.
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(array.tobytes())
    return InputPool(sets, digest.hexdigest())


def check_names(details: Sequence[Mapping[str, Any]], rules: Mapping[str, InputRule]) -> None:
    """Raise `InputSpecNeededError` where the name of a rule is not an input of the model."""
    known = [str(d["name"]) for d in details]
    for name in rules:
        if name not in known:
            raise InputSpecNeededError(f"inputs: {name!r} is not an input of the model; it has {known}")


@dataclass(frozen=True, slots=True)
class _Column:
    """The values of one input, one for each set, so many of them `distinct`."""

    values: list[Array]
    distinct: int


def _column(detail: Mapping[str, Any], model_sha256: str, rule: InputRule, count: int) -> _Column:
    if rule.stored is not None:
        samples = rule.stored.samples(detail)
        return _Column([samples[k % len(samples)] for k in range(count)], min(count, len(samples)))
    seed = hashlib.sha256(f"{model_sha256}|{POOL_VERSION}|{detail['name']}|{rule.seed}".encode()).digest()
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(seed[:16], "little")))
    shape = tuple(int(n) for n in detail["shape"])
    noise = [_value(generator, detail, shape, rule) for _ in range(count - 1)]
    draw_last = _natural if rule.distribution == "uniform" else _value
    return _Column([*noise, draw_last(generator, detail, shape, rule)], count)


def _shifted(values: Sequence[Array]) -> Iterator[Array]:
    """Yield an input's one sample, in each further set shifted by a part of its elements."""
    for k, value in enumerate(values):
        yield np.roll(value, k * value.size // len(values))


def _natural(
    generator: np.random.Generator, detail: Mapping[str, Any], shape: tuple[int, ...], rule: InputRule
) -> Array:
    """Return a picture or a sound over the input's range; noise where it takes neither."""
    dtype = np.dtype(detail["dtype"])
    values = natural(generator, shape) if dtype.kind == "f" or _is_quantised(detail) else None
    if values is None:
        return _value(generator, detail, shape, rule)
    low, high = value_range(detail, rule)
    values = low + (high - low) * values
    return (values if dtype.kind == "f" else np.rint(values)).astype(dtype)


def _value(
    generator: np.random.Generator, detail: Mapping[str, Any], shape: tuple[int, ...], rule: InputRule
) -> Array:
    dtype = np.dtype(detail["dtype"])
    low, high = value_range(detail, rule)
    if rule.distribution == "normal":
        return normal_values(generator, dtype, shape, (low, high))
    if dtype.kind == "f":
        return (low + (high - low) * generator.random(shape)).astype(dtype)
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    return generator.integers(int(low), int(high), size=shape, dtype=dtype, endpoint=True)


def normal_values(
    generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...], bounds: tuple[float, float]
) -> Array:
    """Return Gaussian values over a range, as LiteRT's Inference Diff draws them."""
    low, high = bounds
    shares = generator.normal(_MEAN, _DEVIATION, math.prod(shape))
    while (outside := (shares < 0.0) | (shares >= 1.0)).any():
        shares[outside] = generator.normal(_MEAN, _DEVIATION, int(outside.sum()))
    shares = shares.reshape(shape)
    if dtype.kind == "f":
        return (low + (high - low) * shares).astype(dtype)
    # Each integer of the range has an equal part of it.
    return np.minimum(np.floor(low + (high - low + 1) * shares), high).astype(dtype)


def value_range(detail: Mapping[str, Any], rule: InputRule) -> tuple[float, float]:
    """Return the bounds of an input's values; integers may be equal to the upper one.

    Raises `InputSpecNeededError` for possible indices, for strings, and for bounds that do not fit.
    """
    dtype = np.dtype(detail["dtype"])
    if dtype.kind == "f":
        return _range(rule, -1.0, 1.0)
    if dtype.kind == "b":
        return 0.0, 1.0
    if dtype.kind in "iu":
        return _integer_range(detail, dtype, rule)
    raise InputSpecNeededError(
        f"input {detail['name']!r} has type {dtype}, which cannot be filled with random values"
    )


def _range(rule: InputRule, low: float, high: float) -> tuple[float, float]:
    return (low if rule.low is None else rule.low, high if rule.high is None else rule.high)


def _integer_range(detail: Mapping[str, Any], dtype: np.dtype[Any], rule: InputRule) -> tuple[float, float]:
    info = np.iinfo(dtype)
    if dtype in _INDEX_LIKE and not _is_quantised(detail) and (rule.low is None or rule.high is None):
        raise InputSpecNeededError(
            f"input {detail['name']!r} is {dtype} and may hold indices, so random values could be out of "
            f"range; {_how_to_give_a_range(str(detail['name']))}"
        )
    low, high = _range(rule, info.min, info.max)
    low, high = math.ceil(low), math.floor(high)
    if not info.min <= low <= high <= info.max:
        raise InputSpecNeededError(f"input {detail['name']!r}: range {low}..{high} does not fit {dtype}")
    return low, high


def _is_quantised(detail: Mapping[str, Any]) -> bool:
    return float(detail["quantization"][0]) != 0.0


def _how_to_give_a_range(name: str) -> str:
    """Explain how to set a range, in a campaign file and on the command line."""
    entry = f"inputs: {{{json.dumps(name, ensure_ascii=False)}: {{random: {{range: [0, 999]}}}}}}"
    option = f"--input {shlex.quote(f'{name}=0..999')}"
    return f"with the largest index in place of 999, give the model `{entry}`, or the command `{option}`"
