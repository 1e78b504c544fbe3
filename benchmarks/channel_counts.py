"""Measures the cost of channel counts that are no multiple of 4 or 16 on the GPU delegate, in time and bytes.

    .venv/bin/python -m benchmarks.channel_counts [--rounds 15] [--slice 0.1] [--out FILE]

A stack of convolutions of 3 x 3, each of as many output channels as input channels, for several counts. Time
is the ratio to 16 channels in the same round (`interleaved.py`); `arithmetic of 16` is what it would be if
padding cost nothing. Bytes are those of the activations' arena and of the constants, as `farm model plan`
tells them. Writes benchmarks/results/channel_counts.json and .md. The machine must run nothing else.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.interleaved import ends, measure, ratio, slices
from benchmarks.output import RESULTS, parser, table, write_report
from runtime.model.reader import read_model
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.model_plan import model_plan, planner_of
from tests.runtime.delegates.gpu.caller_models import on_gpu
from tests.runtime.models import Builder
from tests.tree import tree

COUNTS = (1, 3, 4, 5, 7, 8, 16)
"""Channels of a layer; the last is what the others are compared with, a vector of the kernels."""
LAYERS, SIDE = 4, 64
"""Convolutions of a model, and the height and width of its images: some milliseconds on one core."""


def main() -> int:
    """Measure all counts, print, write."""
    options = parser(__doc__, RESULTS / "channel_counts.json")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--slice", type=float, default=0.1, help="seconds per count and round")
    args, began = options.parse_args(), tree()
    with tempfile.TemporaryDirectory(prefix="farm-channels-") as folder:
        arms = {str(count): slices(run_of(count, folder), args.slice) for count in COUNTS}
        taken = measure(arms, args.rounds)
    rows = [row_of(count, taken.seconds) for count in COUNTS]
    lines = page(rows)
    write_report(args.out, {"repeated": taken.repeated, "rows": rows}, lines, began)
    print("\n".join(lines))
    return 0


def stack(channels: int) -> bytes:
    """Build the model of one count."""
    b = Builder()
    shape = (1, SIDE, SIDE, channels)
    value = b.input(np.float32, shape)
    window = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1}
    options = {**window, "dilation_w_factor": 1, "fused_activation_function": ActivationFunctionType.RELU}
    weights = np.random.default_rng(channels).normal(0, 0.1, (channels, 3, 3, channels)).astype(np.float32)
    for _ in range(LAYERS):
        after = b.tensor(np.float32, shape)
        b.operator(Op.CONV_2D, [value, b.constant(weights)], [after], options)
        value = after
    return b.write([value])


def run_of(channels: int, folder: str) -> Callable[[], object]:
    """Return a run on buffers that are used without a copy."""
    compiled = on_gpu(stack(channels), tuning="fast", cache_dir=folder)
    inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    return lambda: compiled.run_by_index(0, inputs, outputs)


def row_of(channels: int, seconds: Any) -> dict[str, Any]:
    """Return the cost of one count, by the `seconds` of each round and by its plan's bytes."""
    (plan,) = model_plan(read_model(stack(channels)), planner_of("gpu", {"cache_dir": ""})).partitions
    most = COUNTS[-1]
    return {
        "channels": channels,
        "time": ratio(seconds[str(channels)], seconds[str(most)]),
        "arithmetic": round((channels / most) ** 2, 3),
        "activation_bytes": plan.arena_bytes,
        # A layer's input and its output in float32, which are alive at the same time.
        "dense_bytes": 2 * 4 * SIDE * SIDE * channels,
        "constant_bytes": plan.constant_bytes,
    }


def page(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a page in Markdown."""
    sizes = ("activation_bytes", "dense_bytes", "constant_bytes")
    heads = ("channels", "time of 16", "95 %", "arithmetic of 16")
    return [
        "# What channel counts cost on the GPU delegate",
        "",
        f"{LAYERS} convolutions of 3 x 3 on {SIDE} x {SIDE} pixels, beside {COUNTS[-1]} channels.",
        "Written by `benchmarks/channel_counts.py`.",
        "",
        *table(
            (*heads, "activations KiB", "dense KiB", "constants KiB"),
            (
                (row["channels"], f"{row['time']['ratio']:.3f}", ends(row["time"]), row["arithmetic"],
                 *(f"{row[size] / 1024:.1f}" for size in sizes))
                for row in rows
            ),
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
