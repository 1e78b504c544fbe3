"""Products by a GPU's matrix units: the operands' layout on any device, the instruction as code for NVIDIA.

Without the instruction, work-items exchange what they hold by local memory, by the layout that PTX documents:
what they compute is right only if the kernel fills and reads the fragments by that layout.
"""

from __future__ import annotations

import re
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks.gpu_compilers import assembler
from benchmarks.gpu_machine_code import ToolError
from runtime.delegates.gpu.alternatives import candidates_of, layout_rules, lowered
from runtime.delegates.gpu.backends.cuda.backend import CudaBackend
from runtime.delegates.gpu.backends.cuda.device import CudaDevice, OpenedDevice
from runtime.delegates.gpu.backends.cuda.ptx import Compiler
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.rounding import round_weights, rounded
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.layout.source import Kernel, assemble
from runtime.delegates.gpu.lowering.matmul.conv import groups
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.gpu.settings.precision import Findings, Trial, settled
from runtime.delegates.gpu.start import preparing
from runtime.errors import DelegateError, UnsupportedPrecisionError
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding, TensorType
from runtime.model.writer import write_model
from tests import needs
from tests.oracle import run_litert
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.delegates.gpu.test_integer_path import layer
from tests.runtime.delegates.gpu.test_work_groups import OPTIONS
from tests.runtime.ops.cases import Case, case, constant, random
from tests.runtime.ops.families import Family
from tests.runtime.ops.matmul.test_conv import RELU, RELU6, conv
from tests.runtime.ops.matmul.test_conv_3d import conv as conv_3d
from tests.sweeps import rarely

TYPES = {"tf32": "TF32", "fp16": "F16", "bf16": "BF16"}
FOUND = Findings({Trial.FP16_STORAGE: "", Trial.BF16_STORAGE: ""}, ("F16", "BF16", "TF32"))
TILES = {tile.name: tile for tile in groups.TILES if tile.rows > 1}

STEP = 32
"""Numbers are multiples of its reciprocal, below 4: eight bits, which all types hold. Sums are exact."""


def exact(one: Case) -> Case:
    """Return the case with numbers that every type holds."""
    model = read_model(one.model)
    (graph,) = model.subgraphs
    tensors = tuple(
        replace(t, data=memoryview(coarse(np.frombuffer(t.data, np.float32)).tobytes()))
        if t.data is not None and t.type is TensorType.FLOAT32
        else t
        for t in graph.tensors
    )
    content = write_model(replace(model, subgraphs=(replace(graph, tensors=tensors),)))
    return replace(one, model=content, inputs=tuple(coarse(value) for value in one.inputs))


def coarse(numbers: np.ndarray) -> np.ndarray:
    return (np.round(numbers * STEP) / STEP).astype(np.float32)


def dense(name: str, rows: int, depth: int, columns: int, activation: int = 0) -> Case:
    args = [random(rows, depth), constant(random(columns, depth, seed=1)), constant(random(columns, seed=2))]
    return case(name, Op.FULLY_CONNECTED, args, options={"fused_activation_function": activation})


CASES = tuple(
    map(
        exact,
        (
            dense("rows", 35, 50, 70),
            conv("windows_of_a_batch", (2, 9, 11, 5), (70, 3, 3, 5), activation=RELU),
        ),
    )
)

MORE = tuple(
    map(
        exact,
        (
            dense("one_step", 17, 16, 16, RELU6),
            dense("all_columns", 130, 37, 260),
            dense("many_parts", 33, 1200, 24, RELU),
            conv("windows_of_an_image", (1, 16, 15, 3), (8, 3, 3, 3), stride=(2, 1), activation=RELU),
            conv("pixels", (2, 7, 9, 33), (40, 1, 1, 33), activation=RELU6),
            conv("dilated", (1, 14, 12, 16), (17, 3, 3, 16), dilation=(2, 2), padding=Padding.VALID),
            conv("groups_of_many", (1, 5, 6, 96), (108, 3, 3, 32), activation=RELU),
            conv_3d("volume", (1, 5, 6, 7, 3), (3, 2, 3, 3, 20), stride=(2, 1, 2), activation=RELU),
        ),
    )
)


def check(cases: tuple[Case, ...], precision: str, tile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare cases with LiteRT, bit for bit; every one of them must run by a kernel for matrix units."""
    names: list[str] = []

    def noted(*given):
        source = assemble(*given)
        names.extend(source.names.values())
        return source

    monkeypatch.setattr(preparing, "assemble", noted)
    monkeypatch.setattr(OpenClBackend, "findings", lambda _: FOUND)
    delegate = GpuDelegate({**OPTIONS, "precision": precision})
    assert "products are rounded to" in delegate.describe()["arithmetic"]
    assert "matrix units: F16, BF16, TF32" in delegate.describe()["narrow_numbers"]
    family = Family(delegate, [(one.model, one.inputs) for one in cases])
    with patch.object(groups, "choose_tile", lambda *_: TILES[tile]):
        for i, one in enumerate(cases):
            found = family.outputs(i)
            assert found is not None
            for ours, theirs in zip(found, run_litert(one.model, one.inputs, one.resolver), strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=str(one))
    products = [name for name in names if "_gemm_" in name and "_join_" not in name]
    assert products
    kernel = "_tf32_matrix_[a-z]+" if precision == "tf32" else rf"_matrix_\w+_{TYPES[precision].lower()}"
    assert all(re.search(f"{kernel}__{tile}", name) for name in products), names


@pytest.mark.parametrize(
    ("precision", "tile"), [("fp16", "m32n64"), ("tf32", "m128n128"), rarely("bf16", "m64n64")]
)
def test_fragments_filled_by_the_documented_layout_give_litert_s_sums(precision, tile, monkeypatch):
    check(CASES, precision, tile, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("precision", TYPES)
def test_every_form_of_both_sides_in_every_tile(precision, tile, monkeypatch):
    check(CASES + MORE, precision, tile, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", TYPES)
def test_what_is_not_finite_and_what_needs_rounding_is_as_numpy_rounds_it(monkeypatch, precision):
    """Sums of float32 of numbers that are rounded once; NaN and infinity stay in their rows."""
    monkeypatch.setattr(OpenClBackend, "findings", lambda _: FOUND)
    rng = np.random.default_rng(5)
    one = dense("rounded", 34, 40, 20)
    x = rng.standard_normal((34, 40)).astype(np.float32)
    x[3, 7], x[20, 1], x[21, 39] = np.nan, np.inf, -np.inf
    weights = np.frombuffer(read_model(one.model).subgraphs[0].tensors[1].data, np.float32).reshape(20, 40)
    narrow = {"tf32": as_tf32, "fp16": lambda v: v.astype(np.float16), "bf16": as_bfloat16}[precision]
    with patch.object(groups, "choose_tile", lambda *_: TILES["m32n64"]):
        delegate = GpuDelegate({**OPTIONS, "precision": precision})
        (found,) = Family(delegate, [(one.model, (x,))]).outputs(0)
    bias = np.frombuffer(read_model(one.model).subgraphs[0].tensors[2].data, np.float32)
    with np.errstate(invalid="ignore"):
        sums = narrow(x).astype(np.float64) @ narrow(weights).astype(np.float64).T + bias
    most = np.finfo(np.float32).max
    np.testing.assert_allclose(found, np.clip(sums, -most, most), rtol=1e-5, atol=1e-5)
    assert np.isnan(found).any(axis=1).sum() == np.isnan(sums).any(axis=1).sum()


def as_bfloat16(numbers: np.ndarray) -> np.ndarray:
    return rounded(numbers, WeightType.BF16).widened()


def as_tf32(numbers: np.ndarray) -> np.ndarray:
    """Round to the nearest with 10 bits behind the point, ties away from zero."""
    mantissa, exponent = np.frexp(numbers)
    nearest = np.floor(np.abs(mantissa) * 2**11 + 0.5) / 2**11
    finite = np.copysign(np.ldexp(nearest, exponent), numbers)
    return np.where(np.isfinite(numbers), finite, numbers).astype(np.float32)


def products(precision: str, tile: str, matrix_type: str):
    """Return the candidates of a product on an assumed GPU."""
    build = ModelBuilder()
    weights = build.constant(np.ones((300, 200), np.float32))
    build.op(Op.FULLY_CONNECTED, [build.input(500, 200), weights], (500, 300))
    model = build.build(build.operators[0].outputs[0])
    graph = optimise(round_weights(build_graph(whole(model)), precision), layout_rules())
    context = Context(graph, replace(ASSUMED["gpu"], matrix_type=matrix_type))
    with patch.object(groups, "choose_tile", lambda *_: TILES.get(tile, groups.TILES[-1])):
        return candidates_of(graph.nodes[0], context)


def test_only_what_the_precision_rounds_is_multiplied_by_matrix_units():
    """Weights that the file has narrow, in another precision, and the smallest tile keep float products."""
    found = [one.name.partition("_split")[0] for one in products("fp16", "m64n64", "F16")]
    assert found == ["matrices_m64n64", "groups_m64n64"]
    found = [one.name.partition("_split")[0] for one in products("tf32", "m64n64", "TF32")]
    assert found == ["matrices_m64n64", "groups_m64n64"]
    for precision, tile, matrix_type in (
        ("fp16", "m64n64", ""),
        ("fp32", "m64n64", "F16"),
        ("bf16", "m64n64", "F16"),
        ("fp16", "m64n64", "TF32"),
        ("fp16", "m16n64", "F16"),
    ):
        (other,) = products(precision, tile, matrix_type)
        assert other.name.startswith(f"groups_{tile}")
    assert FOUND.matrix_type("fp32") == ""
    strict = Options(precision="fp16", require_narrow_products=True)
    assert settled(strict, ASSUMED["gpu"], lambda: FOUND) == "fp16"


def test_a_device_without_matrix_units_refuses_tf32():
    with pytest.raises(
        UnsupportedPrecisionError, match=r"'tf32': no kernel multiplies in it \(.*\); use 'fp32'$"
    ):
        GpuDelegate({**OPTIONS, "precision": "tf32"})


@pytest.mark.parametrize(
    ("target", "types", "dots"),
    [((6, 1), (), False), ((7, 5), (), True), ((8, 0), ("F16", "BF16", "TF32"), True)],
)
def test_cuda_has_them_and_dot_products_from_its_compute_capability_on(target, types, dots):
    device = CudaDevice(0, "a GPU", "1b" * 16, "0000:3b:00.0", target, 0)
    found = CudaBackend(OpenedDevice(device, 0, ASSUMED["gpu"]), open_cache(None)).findings()
    assert found.matrix_types == types
    assert settled(Options(precision="fp16"), ASSUMED["gpu"], lambda: found) == "fp16"
    strict = Options(precision="int8", require_narrow_products=True)
    with nullcontext() if dots else pytest.raises(UnsupportedPrecisionError, match="no instruction"):
        assert settled(strict, ASSUMED["gpu"], lambda: found) == "int8"


def translated(kernel: Kernel, target: tuple[int, int], folder: Path) -> tuple[str, str]:
    """Return a kernel's PTX for NVIDIA, and what its assembler says of it."""
    try:
        text, command = Compiler.found().ptx(kernel, target).text, [assembler(), "-v", "-arch=sm_80"]
    except (DelegateError, ToolError) as error:
        needs.absent(str(error))
    (folder / "text.ptx").write_text(text)
    command += [str(folder / "text.ptx"), "-o", str(folder / "code")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return text, done.stderr


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("precision", TYPES)
def test_code_for_nvidia_has_the_instruction_for_every_part_of_a_tile(precision, tile, tmp_path: Path):
    """Unrolled, and without the memory of the exchange, which would halve the groups that fit."""
    launch = products(precision, tile, TYPES[precision])[0].launches[0]
    (kernel,) = assemble([launch], ASSUMED["gpu"]).kernels
    text, said = translated(kernel, (8, 0), tmp_path)
    shape, kind = TILES[tile], TYPES[precision].lower()
    # Of TF32 an instruction takes half as much of K, and a number twice the memory.
    (depth, times) = (8, 2) if precision == "tf32" else (16, 1)
    instruction = f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32"
    assert text.count(instruction) == times * shape.rows * shape.vectors
    assert "0 bytes stack frame, 0 bytes spill stores" in said
    # The largest tile's sums leave no room for a second group.
    assert re.findall(r"\.minnctapersm (\d)", text) == (["2"] if tile == "m128n64" else [])
    (registers,) = map(int, re.findall(r"Used (\d+) registers", said))
    assert registers <= (255 if tile == "m128n128" else 128)
    shared = re.search(r"(\d+) bytes smem", said)
    assert shared is not None
    assert int(shared[1]) == times * 2 * shape.depth * (shape.height + shape.width)


def test_products_of_bytes_are_an_instruction_where_the_device_has_it(tmp_path: Path):
    """It takes four for each sum of a work-item; the oldest target has none."""
    given = whole(read_model(layer(Op.CONV_2D, (1, 14, 14, 96), (128, 3, 3, 96), 0)))
    _, ((candidate,),) = lowered(given, ASSUMED["gpu"], Options(precision="int8"), Quantised.LEVELS)
    (launch,) = candidate.launches
    (kernel,) = assemble([launch], ASSUMED["gpu"]).kernels
    rows = int(dict(launch.instance.defines)["ROWS"])
    text, said = translated(kernel, (8, 0), tmp_path)
    assert text.count("dp4a.u32.s32") == 16 * 4 * rows
    assert "0 bytes stack frame, 0 bytes spill stores" in said
    assert text.count("dp4a.u32.s32") == translated(kernel, (7, 5), tmp_path)[0].count("dp4a.u32.s32")
    assert "dp4a" not in translated(kernel, (6, 1), tmp_path)[0]
