"""Writes one small network in five kinds of files, which `benchmarks/model_kinds.yaml` measures.

    python -m benchmarks.kind_models [FOLDER]

Two convolutions, a mean and a fully connected layer over pictures of 32x32 pixels and 8 channels, with random
weights of a fixed seed: as float32, with fp16 weights, with weights in int8 (dynamic range), in integers, and
with the FAKE_QUANT operators of quantisation-aware training. Ranges are those of 16 random pictures.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.output import REPOSITORY
from runtime.api.interpreter import Interpreter
from runtime.model.graph import Quantization
from runtime.model.schema import BuiltinOperator as Op
from tests.models.comparison import run_rows
from tests.runtime.models import Builder, per_channel, per_tensor

FOLDER: Final = REPOSITORY / "examples/kinds"
_PICTURES: Final = 16
"""Random pictures whose values give the ranges of integers. Chosen: more widened none by a tenth."""

_SHAPES: Final = ((1, 32, 32, 8), (1, 32, 32, 16), (1, 16, 16, 32), (1, 32), (1, 10))
_WEIGHTS: Final = ((16, 3, 3, 8), (32, 3, 3, 16), (10, 32))
_RELU: Final = 1
Values: TypeAlias = NDArray[np.float32]
Range: TypeAlias = tuple[float, float]


class Layers:
    """The network as float32; a kind of file changes how weights are held and what layers compute with."""

    integer = False

    def __init__(self, ranges: Sequence[Range] = ()) -> None:
        rng = np.random.default_rng(7)
        self.b, self.ranges = Builder(), ranges
        self.values = [
            rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float32) for shape in _WEIGHTS
        ]
        self.biases = [rng.normal(0, 0.1, shape[0]).astype(np.float32) for shape in _WEIGHTS]

    def weights(self, layer: int) -> list[int]:
        """Return the tensors of a layer's weights and biases."""
        return [self.b.constant(self.values[layer]), self.b.constant(self.biases[layer])]

    def made(self, place: int) -> int:
        """Return a tensor for the values between two layers."""
        return self.b.tensor(np.float32, _SHAPES[place])

    def seen(self, tensor: int, place: int) -> int:  # noqa: ARG002  # a kind of file reads it
        """Return what the next layer reads."""
        return tensor

    def versions(self) -> Mapping[Op, int]:
        """Return the versions of operators beyond 1."""
        return {}

    def build(self, *, shows_all: bool = False) -> bytes:
        """Return the file; with `shows_all`, what lies between the layers are outputs, too."""
        x = self.b.input(np.int8 if self.integer else np.float32, _SHAPES[0], self.quantization(0))
        between = [self.seen(x, 0)]
        conv = {"padding": 0, "fused_activation_function": _RELU}
        for layer, stride in ((0, 1), (1, 2)):
            options = {**conv, "stride_w": stride, "stride_h": stride}
            between.append(self._layer(Op.CONV_2D, [between[-1], *self.weights(layer)], layer + 1, options))
        axes = self.b.constant(np.array([1, 2], np.int32))
        between.append(self._layer(Op.MEAN, [between[-1], axes], 3, {"keep_dims": False}))
        between.append(self._layer(Op.FULLY_CONNECTED, [between[-1], *self.weights(2)], 4, {}))
        return self.b.write(between[1:] if shows_all else between[-1:])

    def quantization(self, place: int) -> Quantization | None:  # noqa: ARG002  # so does one
        """Return the scale of the values between two layers; None for floats."""
        return None

    def _layer(self, opcode: Op, inputs: list[int], place: int, options: dict[str, Any]) -> int:
        made = self.made(place)
        self.b.operator(opcode, inputs, [made], options, version=self.versions().get(opcode, 1))
        return self.seen(made, place)


class HalfWeights(Layers):
    """Weights in fp16, which DEQUANTIZE widens."""

    def weights(self, layer: int) -> list[int]:
        """See `Layers`."""
        found = []
        for value in (self.values[layer], self.biases[layer]):
            found.append(self.b.tensor(np.float32, value.shape))
            self.b.operator(Op.DEQUANTIZE, [self.b.constant(value.astype(np.float16))], found[-1:], version=3)
        return found


class DynamicRange(Layers):
    """Weights in int8, activations in float32."""

    def weights(self, layer: int) -> list[int]:
        """See `Layers`."""
        return [levels(self.b, self.values[layer], layer < 2), self.b.constant(self.biases[layer])]

    def versions(self) -> Mapping[Op, int]:
        """See `Layers`."""
        return {Op.CONV_2D: 5, Op.FULLY_CONNECTED: 3}


class Integers(Layers):
    """Weights and activations in int8."""

    integer = True

    def quantization(self, place: int) -> Quantization:
        """See `Layers`: the range of the pictures, with 0 in it, over 255 levels."""
        low, high = min(0.0, self.ranges[place][0]), max(0.0, self.ranges[place][1])
        scale = (high - low) / 255
        return per_tensor(scale, int(np.clip(round(-128 - low / scale), -128, 127)))

    def weights(self, layer: int) -> list[int]:
        """See `Layers`."""
        held = levels(self.b, self.values[layer], layer < 2)
        scales = self.b.tensors[held].quantization
        assert scales is not None
        # Where a layer's input lies in `_SHAPES`: the mean comes between the second and the third.
        place = (0, 1, 3)[layer]
        # LiteRT: the scale of a bias is that of the input times that of the weights.
        product = [self.quantization(place).scales[0] * scale for scale in scales.scales]
        biases = np.round(self.biases[layer] / np.array(product)).astype(np.int32)
        scale = per_channel(product) if len(product) > 1 else per_tensor(product[0])
        return [held, self.b.constant(biases, scale)]

    def made(self, place: int) -> int:
        """See `Layers`."""
        return self.b.tensor(np.int8, _SHAPES[place], self.quantization(place))

    def versions(self) -> Mapping[Op, int]:
        """See `Layers`."""
        return {Op.CONV_2D: 3, Op.FULLY_CONNECTED: 4, Op.MEAN: 2}


class Aware(Layers):
    """Floats that FAKE_QUANT rounds to the levels of int8, as in training."""

    def seen(self, tensor: int, place: int) -> int:
        """See `Layers`."""
        low, high = self.ranges[place]
        rounded = self.b.tensor(np.float32, _SHAPES[place])
        options = {"min": min(0.0, low), "max": max(0.0, high), "num_bits": 8, "narrow_range": False}
        self.b.operator(Op.FAKE_QUANT, [tensor], [rounded], options)
        return rounded


def levels(b: Builder, value: Values, is_per_channel: bool) -> int:
    """Add weights in int8, with a scale for each output channel or one for all."""
    axes = tuple(range(1, value.ndim)) if is_per_channel else None
    scales = np.maximum(np.abs(value).max(axis=axes), 1e-9) / 127
    shaped = scales.reshape(-1, *[1] * (value.ndim - 1)) if is_per_channel else scales
    quantization = per_channel(scales.tolist()) if is_per_channel else per_tensor(float(scales))
    return b.constant(np.clip(np.round(value / shaped), -127, 127).astype(np.int8), quantization)


def ranges() -> list[Range]:
    """Return the least and the greatest value of the input, and behind each layer."""
    interpreter = Interpreter(model_content=Layers().build(shows_all=True))
    ((given,), rng) = interpreter.get_input_details(), np.random.default_rng(3)
    pictures = [[rng.uniform(-1, 1, given["shape"]).astype(np.float32)] for _ in range(_PICTURES)]
    made = run_rows(interpreter, pictures)
    values = zip(*(picture + outputs for picture, outputs in zip(pictures, made, strict=True)), strict=True)
    return [(float(np.min(one)), float(np.max(one))) for one in values]


KINDS: Final[Mapping[str, Callable[[Sequence[Range]], Layers]]] = {
    "float32": Layers, "fp16_weights": HalfWeights, "dynamic_range": DynamicRange, "integer": Integers,
    "quantisation_aware": Aware,
}  # fmt: skip


def main() -> int:
    """Write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    known = ranges()
    for name, kind in KINDS.items():
        (folder / f"{name}.tflite").write_bytes(kind(known).build())
    return 0


if __name__ == "__main__":
    sys.exit(main())
