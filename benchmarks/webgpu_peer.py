"""Times the kernels of `gpu` through Vulkan beside onnxruntime's WebGPU provider on the same adapter.

    pip install --target FOLDER --no-deps onnxruntime-webgpu onnx ml_dtypes
    VK_DRIVER_FILES=DRIVER.json python -m benchmarks.webgpu_peer --packages FOLDER [--rounds 15]

Each model is a few layers of one kind, as a `.tflite` file and as ONNX with the same weights; both run from
an array to an array, by turns, and both outputs are compared with those of `cpu`. No node of either may run
elsewhere than on the adapter, of which there must be one alone: the provider tells no name. Its Dawn accepts
lavapipe of Mesa 25.0.7, and finds "No supported adapters" with 22.3.6. Writes results/webgpu_peer.{json,md}.
The machine must run nothing else.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import output
from benchmarks.interleaved import ends, measure, ratio, slices
from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.backends.webgpu.adapter import list_adapters
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from tests.models.comparison import run_rows
from tests.runtime.delegates.gpu.caller_models import on_gpu
from tests.runtime.models import Builder
from tests.tree import tree

LAYERS: Final = 4
"""How often the steps of a model are repeated: the copies of its ends then weigh little."""

MARK: Final = 1.5
"""Times as fast as the provider: the mark."""

TOLERANCE: Final = 1e-4
"""Largest relative error against `cpu`, in the Euclidean norm, as for every float model of the farm."""

_WINDOW: Final = {
    "padding": Padding.SAME, "stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1,
    "fused_activation_function": ActivationFunctionType.NONE,
}  # fmt: skip
_PADS: Final = {"pads": [1, 1, 1, 1]}
_RNG: Final = np.random.default_rng(7)


def _drawn(*shape: int, fan_in: int = 1) -> np.ndarray:
    return _RNG.normal(0, fan_in**-0.5, shape).astype(np.float32)


class Step(NamedTuple):
    """One operator in both formats, with its constant and its options in each."""

    op: Op
    peer: str
    constants: tuple[np.ndarray, np.ndarray] | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    peer_options: Mapping[str, Any] = MappingProxyType({})


def _window(channels: int, *, depthwise: bool) -> Step:
    if depthwise:
        weights = _drawn(1, 3, 3, channels, fan_in=9)
        options, peer_options = {**_WINDOW, "depth_multiplier": 1}, {**_PADS, "group": channels}
        # To ONNX it is a convolution with a group for each channel: channel, 1, height, width.
        both = weights, weights.transpose(3, 0, 1, 2)
        return Step(Op.DEPTHWISE_CONV_2D, "Conv", both, options, peer_options)
    # Ours: output, height, width, input; ONNX's: output, input, height, width.
    weights = _drawn(channels, 3, 3, channels, fan_in=9 * channels)
    return Step(Op.CONV_2D, "Conv", (weights, weights.transpose(0, 3, 1, 2)), _WINDOW, _PADS)


_MATRIX, _VALUES = _drawn(512, 512, fan_in=512), _drawn(128)
_BOTH_VALUES: Final = _VALUES, _VALUES.reshape(-1, 1, 1)

MODELS: Final[dict[str, tuple[tuple[int, ...], list[Step]]]] = {
    "matmul 256 x 512 x 512": ((256, 512), [Step(Op.FULLY_CONNECTED, "MatMul", (_MATRIX, _MATRIX.T))]),
    "conv 3 x 3, 56 x 56 x 64": ((1, 56, 56, 64), [_window(64, depthwise=False)]),
    "depthwise 3 x 3, 56 x 56 x 128": ((1, 56, 56, 128), [_window(128, depthwise=True)]),
    "mul, add, tanh, 56 x 56 x 128": (
        (1, 56, 56, 128),
        [Step(Op.MUL, "Mul", _BOTH_VALUES), Step(Op.ADD, "Add", _BOTH_VALUES), Step(Op.TANH, "Tanh")],
    ),
    "softmax 2048 x 256": ((2048, 256), [Step(Op.SOFTMAX, "Softmax", options={"beta": 1.0})]),
}
"""Shape of the input in our order, channels last, and the steps of a layer."""


def main() -> int:
    """Measure all models, print, write; the exit code is 1 where the mark is missed, 2 without the peer."""
    parser = output.parser(__doc__, output.RESULTS / "webgpu_peer.json")
    parser.add_argument("--packages", type=Path, required=True, help="folder of onnxruntime-webgpu and onnx")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--slice", type=float, default=0.2, help="seconds of each side in a round")
    args, began = parser.parse_args(), tree()
    # Behind what is installed: the project's own packages stay those of its lock.
    sys.path.append(str(args.packages))
    adapters = [one for one in list_adapters() if one.info["backend_type"] == "Vulkan"]
    if len(adapters) != 1:
        print(
            f"one adapter of Vulkan is needed, not {len(adapters)}: name it with VK_DRIVER_FILES",
            file=sys.stderr,
        )
        return 2
    rows = [compared(name, args.rounds, args.slice) for name in MODELS]
    report = {"adapter": adapters[0].summary, "rows": rows}
    missed = int(any(row["speed"]["ratio"] < MARK for row in rows))
    output.write_report(args.out, report, _page(report), began, missed)
    print("\n".join(_page(report)))
    return missed


def compared(name: str, rounds: int, slice_s: float) -> dict[str, Any]:
    """Run one model on both sides by turns. Raises `ValueError` for a wrong output."""
    shape, steps = MODELS[name]
    x, model = _drawn(*shape), ours(shape, steps)
    sides = {"gpu": _on_vulkan(model, x), "peer": _on_peer(theirs(shape, steps), x)}
    ((expected,),), errors = run_rows(Interpreter(model_content=model), [[x]]), {}
    for side, run in sides.items():
        errors[side] = float(np.linalg.norm(run() - expected) / np.linalg.norm(expected))
        # Not `>`, which is false for a NaN.
        if not errors[side] <= TOLERANCE:
            raise ValueError(
                f"{name}: the output of {side} is wrong, its relative error is {errors[side]:.2g}"
            )
    taken = measure({side: slices(run, slice_s) for side, run in sides.items()}, rounds)
    ms = {side: 1e3 * float(np.median(seconds)) for side, seconds in taken.seconds.items()}
    speed = ratio(taken.seconds["peer"], taken.seconds["gpu"])
    return {"model": name, "ms": ms, "speed": speed, "rel_l2": errors, "repeated": taken.repeated}


def ours(shape: tuple[int, ...], steps: list[Step]) -> bytes:
    """Build the model as a `.tflite` file."""
    b = Builder()
    value = b.input(np.float32, shape)
    for step in steps * LAYERS:
        constants = [] if step.constants is None else [b.constant(step.constants[0])]
        after = b.tensor(np.float32, shape)
        b.operator(step.op, [value, *constants], [after], dict(step.options))
        value = after
    return b.write([value])


def theirs(shape: tuple[int, ...], steps: list[Step]) -> bytes:
    """Build the model as ONNX, whose images have their channels first."""
    onnx, helper, numpy_helper = map(import_module, ("onnx", "onnx.helper", "onnx.numpy_helper"))
    nodes, constants = [], []
    for number, step in enumerate(steps * LAYERS):
        inputs = [f"v{number}"]
        if step.constants is not None:
            constants.append(numpy_helper.from_array(np.ascontiguousarray(step.constants[1]), f"c{number}"))
            inputs.append(f"c{number}")
        nodes.append(helper.make_node(step.peer, inputs, [f"v{number + 1}"], **step.peer_options))
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, _first(np.empty(shape)).shape)
        for name in ("v0", f"v{len(nodes)}")
    ]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], constants)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if x.ndim == 4 else x


def _on_vulkan(model: bytes, x: np.ndarray) -> Callable[[], np.ndarray]:
    compiled = on_gpu(model, backend="vulkan", tuning="fast", cache_dir="")
    inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)

    def run() -> np.ndarray:
        inputs[0].write(x)
        compiled.run_by_index(0, inputs, outputs)
        return outputs[0].read(x.size, np.float32).reshape(x.shape)

    return run


def _on_peer(model: bytes, x: np.ndarray) -> Callable[[], np.ndarray]:
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    # A node that the provider does not take is then an error, and does not run on the CPU.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = [("WebGpuExecutionProvider", {"dawnBackendType": "Vulkan"})]
    session = onnxruntime.InferenceSession(model, options, providers=providers)
    given = _first(x)

    def run() -> np.ndarray:
        (found,) = session.run(None, {"v0": given})
        return np.asarray(found.transpose(0, 2, 3, 1) if found.ndim == 4 else found)

    return run


def _page(report: dict[str, Any]) -> list[str]:
    rows = [
        (row["model"], *(f"{row['ms'][side]:.2f}" for side in ("gpu", "peer")),
         f"{row['speed']['ratio']:.2f}", ends(row["speed"]))
        for row in report["rows"]
    ]  # fmt: skip
    return [
        "# Kernels through Vulkan beside onnxruntime's WebGPU provider",
        "",
        f"{LAYERS} layers of each kind on {report['adapter']}.",
        f"Mark: `gpu` is at least {MARK} x as fast.",
        "",
        *output.table(("model", "gpu ms", "onnxruntime ms", "gpu's speed over it", "95 %"), rows),
    ]


if __name__ == "__main__":
    sys.exit(main())
