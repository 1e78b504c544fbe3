"""The inputs of `benchmark_model`: LiteRT's ranges, drawn once from a fixed seed, or bytes of a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from runtime.delegates.base import Array
from runtime.evaluation.flags import FlagError, Flags
from runtime.measure.inputs import InputRule

_SEED: Final = 5489
"""Of the drawn values, the default seed of C++'s mt19937, so that every process has the same data."""

_RANGES: Final = {"uint8": (0, 254), "int8": (-127, 127), "int16": (0, 0), "bool": (0, 1)}
"""LiteRT's inclusive ranges of these types; every other integer has 0..99."""


@dataclass(frozen=True, slots=True)
class InputSettings:
    """Shapes, inclusive ranges and files of values by the names of inputs."""

    shapes: Mapping[str, tuple[int, ...]]
    ranges: Mapping[str, tuple[float, float]]
    files: Mapping[str, Path]

    @classmethod
    def of(cls, flags: Flags) -> "InputSettings":
        """Read the flags of inputs. Raises `FlagError` for one of another form."""
        names = [name for name in flags.text("input_layer").split(",") if name]
        shapes = [text for text in flags.text("input_layer_shape").split(":") if text]
        if len(names) != len(shapes):
            raise FlagError(
                f"--input_layer has {len(names)} names and --input_layer_shape {len(shapes)} shapes"
            )
        ranges = [text for text in flags.text("input_layer_value_range").split(":") if text]
        files = [text for text in flags.text("input_layer_value_files").split(",") if text]
        return cls(
            {name: _shape(text) for name, text in zip(names, shapes, strict=True)},
            dict(_range(text) for text in ranges),
            dict(_file(text) for text in files),
        )

    def rules(self) -> dict[str, InputRule]:
        """Return the shapes as rules with which a model is opened."""
        return {name: InputRule(shape=shape) for name, shape in self.shapes.items()}

    def ranged_rules(self, details: Sequence[Mapping[str, Any]]) -> dict[str, InputRule]:
        """Return the shapes with the ranges of integers, by which a profile fills its inputs."""
        rules = self.rules()
        for detail in details:
            name, dtype = str(detail["name"]), np.dtype(detail["dtype"])
            if dtype.kind in "iu":
                low, high = self.ranges.get(name, _RANGES.get(dtype.name, (0, 99)))
                rules[name] = replace(rules.get(name, InputRule()), low=low, high=high)
        return rules

    def values(self, details: Sequence[Mapping[str, Any]]) -> tuple[Array, ...]:
        """Return the value of each input. Raises `FlagError` for an unknown name or a wrong file."""
        known = [str(detail["name"]) for detail in details]
        for name in (*self.ranges, *self.files):
            if name not in known:
                raise FlagError(f"{name!r} is not an input of the model; it has {', '.join(known)}")
        generator = np.random.Generator(np.random.PCG64(_SEED))
        return tuple(self._value(generator, detail) for detail in details)

    def _value(self, generator: np.random.Generator, detail: Mapping[str, Any]) -> Array:
        name, dtype = str(detail["name"]), np.dtype(detail["dtype"])
        shape = tuple(int(n) for n in detail["shape"])
        if name in self.files:
            return _stored(self.files[name], dtype, shape)
        if dtype.kind == "f":
            low, high = self.ranges.get(name, (-0.5, 0.5))
            return (low + (high - low) * generator.random(shape)).astype(dtype)
        if dtype.kind in "iub":
            low, high = self.ranges.get(name, _RANGES.get(dtype.name, (0, 99)))
            # Ranges are read as reals; the bounds of an integer must be whole and inside its type.
            if low != int(low) or high != int(high):
                raise FlagError(f"--input_layer_value_range: {low:g},{high:g} for {name!r}, which is {dtype}")
            if dtype.kind != "b" and not np.iinfo(dtype).min <= low <= high <= np.iinfo(dtype).max:
                raise FlagError(f"--input_layer_value_range: {low:g},{high:g} does not fit {name!r}, {dtype}")
            return generator.integers(int(low), int(high), size=shape, endpoint=True).astype(dtype)
        if dtype.kind in "OSU":
            return np.full(shape, b"", dtype=np.object_)
        raise FlagError(f"input {name!r} has type {dtype}, which cannot be drawn; give a file of values")


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise FlagError(
            f"--input_layer_shape: {text!r} is not a list of sizes as 1,224,224,3; -1 is not a size"
        )
    return tuple(int(size) for size in text.split(","))


def _range(text: str) -> tuple[str, tuple[float, float]]:
    # From the right, since the name of a tensor may contain commas.
    parts = text.rsplit(",", 2)
    try:
        name, low, high = parts[0], float(parts[1]), float(parts[2])
    except (IndexError, ValueError) as error:
        raise FlagError(f"--input_layer_value_range: {text!r} is not of the form NAME,LOW,HIGH") from error
    if not low <= high:
        raise FlagError(f"--input_layer_value_range: {text!r} has no value")
    return name, (low, high)


def _file(text: str) -> tuple[str, Path]:
    # At single colons: a doubled one is a colon of the name or the path.
    parts = re.split(r"(?<!:):(?!:)", text)
    if len(parts) != 2 or not all(parts):  # a name and a path
        raise FlagError(f"--input_layer_value_files: {text!r} is not of the form NAME:PATH (`::` is a colon)")
    return parts[0].replace("::", ":"), Path(parts[1].replace("::", ":"))


def _stored(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    if dtype.kind not in "fiub":
        raise FlagError(f"{path}: values of type {dtype} are not read from files")
    content = path.read_bytes()
    expected = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if len(content) != expected:
        raise FlagError(f"{path} has {len(content)} bytes; the input has {expected}")
    return np.frombuffer(content, dtype).reshape(shape).copy()
