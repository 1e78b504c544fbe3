"""Random numbers: RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL, MULTINOMIAL (`random_ops.cc`), bits for StableHLO.

With the seeds of the file they are LiteRT's numbers; seeds of 0 and 0 mean a new seed for each allocation.
"""

import secrets

import numpy as np

from runtime.model.schema import RngAlgorithm
from runtime.ops.random.counter_random import PhiloxStream, philox, threefry
from runtime.ops.support import INDICES, Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import stated_shape

_SMALLEST = np.float32(1e-7)
"""Least uniform number under the logarithm of Box and Muller's transform (`epsilon` of TensorFlow's
`BoxMullerFloat`): it keeps the radius finite, below 5.7."""

_WORDS = (TensorType.INT32, TensorType.INT64, TensorType.UINT32, TensorType.UINT64)


def _stream(op: OpContext) -> PhiloxStream:
    """Return the stream of the file's seeds, of which LiteRT keeps 32 bits each, with their sign."""
    seed, seed2 = ((op.option(n) + 2**31) % 2**32 - 2**31 for n in ("seed", "seed2"))
    if seed == 0 and seed2 == 0:
        seed, seed2 = secrets.randbits(64), secrets.randbits(64)
    return PhiloxStream(seed, seed2)


def _unit(words: Array) -> Array:
    """Return float32 in [0, 1) from the low 23 bits of words: the fraction of a number in [1, 2), less 1."""
    bits = (words & np.uint32(0x7FFFFF)) | np.uint32(127 << 23)
    return bits.view(np.float32) - np.float32(1)


def random_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape in input 0."""
    return (stated_shape(op, 0),)


def _float_output(op: OpContext) -> Array:
    if op.output().type is not TensorType.FLOAT32:
        raise op.unsupported(f"numbers of type {op.output().type.name}")
    return op.write().reshape(-1)


@operator(
    Op.RANDOM_UNIFORM,
    infer=random_shape,
    types=(TensorType.INT32,),
    stateful=True,
    note="float32 numbers; the input is their shape",
)
def random_uniform(op: OpContext) -> Kernel:
    """RANDOM_UNIFORM: float32 in [0, 1)."""
    y, stream = _float_output(op), _stream(op)

    def run() -> None:
        y[:] = _unit(stream.draw(y.size))

    return run


@operator(
    Op.RANDOM_STANDARD_NORMAL,
    infer=random_shape,
    types=(TensorType.INT32,),
    stateful=True,
    note="float32 numbers; the input is their shape",
)
def random_standard_normal(op: OpContext) -> Kernel:
    """RANDOM_STANDARD_NORMAL: float32 by Box and Muller's transform, two numbers from two words."""
    y, stream = _float_output(op), _stream(op)

    def run() -> None:
        words = stream.draw(-(-y.size // 2) * 2).reshape(-1, 2)
        radius = np.sqrt(np.float32(-2) * np.log(np.maximum(_unit(words[:, 0]), _SMALLEST)))
        # The reference's 2 * M_PI is a double, its angle a float: the product is rounded once.
        angle = (2 * np.pi * _unit(words[:, 1]).astype(np.float64)).astype(np.float32)
        pair = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=-1)
        y[:] = pair.reshape(-1)[: y.size]

    return run


def multinomial_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [batch, samples]."""
    op.require(TensorType.INT32, i=1)
    shape, samples = op.input().shape, op.integers(1, "number of samples")
    if len(shape) != 2 or shape[1] < 1 or op.input(1).shape != () or samples[0] < 0:
        raise op.error(f"{list(samples)} samples from logits of shape {list(shape)}")
    return ((shape[0], samples[0]),)


@operator(Op.MULTINOMIAL, infer=multinomial_shape, types=(TensorType.FLOAT32,), stateful=True)
def multinomial(op: OpContext) -> Kernel:
    """MULTINOMIAL: classes drawn with the logits' probabilities, never one whose logit is not finite."""
    if op.output().type not in INDICES:
        raise op.unsupported(f"samples of type {op.output().type.name}")
    logits, y, stream = op.read(0), op.write(), _stream(op)
    batch, samples = y.shape
    # The reference reserves 256 blocks for every word that it may need; the next run starts behind them.
    skipped = batch * (-(-samples // 4) * 4) * 2 * 256

    def run() -> None:
        words = stream.peek(2 * batch * samples).reshape(batch, samples, 2)
        stream.skip(skipped)
        for row, drawn, out in zip(logits, words, y, strict=True):
            finite = np.isfinite(row)
            top = row[finite].max() if finite.any() else np.finfo(np.float32).min
            odds = np.where(finite, np.exp(row.astype(np.float64) - np.float64(top)), 0.0)
            sums = np.add.accumulate(odds)
            out[:] = np.searchsorted(sums, _double_unit(drawn) * sums[-1], side="right")

    return run


def _double_unit(pairs: Array) -> Array:
    """Return float64 in [0, 1) from the low 20 bits of the first word and all of the second."""
    high = (pairs[:, 0] & np.uint32(0xFFFFF)).astype(np.uint64) << np.uint64(32)
    bits = high | pairs[:, 1] | np.uint64(1023 << 52)
    return np.asarray(bits.view(np.float64) - 1.0)


@operator(
    Op.STABLEHLO_RNG_BIT_GENERATOR,
    # The shape of the bits is the one that the file declares.
    infer=lambda op: (op.input().shape, op.output(1).shape),
    types=(TensorType.UINT64,),
    note="bits as int32, uint32, int64, uint64; Philox or Threefry",
)
def random_bits(op: OpContext) -> Kernel:
    """STABLEHLO_RNG_BIT_GENERATOR: words from a state, and the state after them (`rng_bit_generator.cc`).

    The state, uint64 [2] or for Philox [3], is a key and a counter. A Philox state of two words uses its key
    for the counter's high half too.
    """
    state, after, y = op.read(0), op.write(0), op.write(1)
    is_threefry = op.option("algorithm") is RngAlgorithm.THREEFRY
    if state.shape not in ((2,), (2 if is_threefry else 3,)) or op.output(1).type not in _WORDS:
        raise op.error(f"a state of {list(state.shape)} for {op.output(1).type.name}")
    words = y.reshape(-1).view(np.uint32)
    blocks = -(-words.size // (2 if is_threefry else 4))

    def run() -> None:
        key = (int(state[0]) & 0xFFFFFFFF, int(state[0]) >> 32)
        counters = state[1] + np.arange(blocks, dtype=np.uint64)
        if is_threefry:
            drawn = threefry(key, counters)
        else:
            third = int(state[2] if state.size == 3 else state[0])
            drawn = philox(key, counters, (third & 0xFFFFFFFF, third >> 32))
        words[:] = drawn.reshape(-1)[: words.size]
        np.copyto(after, state)
        after[1] = state[1] + np.uint64(blocks)

    return run
