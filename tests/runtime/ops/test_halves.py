"""Activations in fp16 between kernels of work-groups: which buffers, which numbers, which backends."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter, load_delegate
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.errors import DelegateError, DeviceError
from runtime.model.graph import Operator, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding, TensorType
from runtime.model.writer import write_model
from runtime.tools.model_plan import model_plan, planner_of
from tests.needs import absent
from tests.oracle import run_litert
from tests.runtime import kernel_checker
from tests.runtime.delegates.gpu.models import ModelBuilder
from tests.runtime.delegates.gpu.test_work_groups import CASES, FEW, OPTIONS
from tests.runtime.ops.cases import Backend, Case
from tests.runtime.ops.families import asked
from tests.sweeps import rarely, sweep

FP16 = {**OPTIONS, "precision": "fp16"}

TOLERANCE = 1e-3
"""Relative to the norm of the outputs: weights and results are off by 2^-11 each at most, inputs are not."""

LEFT_OUT = ("volume", *(["tiles_with_idle_items"] if kernel_checker.wanted() else []))
"""The case whose results have five dimensions, of which LiteRT normalises four at most; and a large one, for
which the checker takes minutes."""

WINDOW = {"filter_width": 2, "filter_height": 2, "stride_w": 1, "stride_h": 1, "padding": Padding.VALID}


def between_others(one: Case) -> Case:
    """Return the case with a node on each side, so that its own kernel reads and writes halves."""
    (subgraph,) = read_model(one.model).subgraphs
    tensors, before, after = list(subgraph.tensors), [], []

    def added(like: Tensor, name: str) -> int:
        tensors.append(replace(like, index=len(tensors), name=name, buffer=0, data=None))
        return len(tensors) - 1

    inputs, outputs = list(subgraph.inputs), list(subgraph.outputs)
    for place, tensor in enumerate(inputs):
        if tensors[tensor].type is TensorType.FLOAT32:
            inputs[place] = added(tensors[tensor], f"given{place}")
            before.append(Operator(0, Op.NEG, 1, (inputs[place],), (tensor,)))
    for place, tensor in enumerate(outputs):
        outputs[place] = added(tensors[tensor], f"wanted{place}")
        after.append(Operator(0, Op.L2_NORMALIZATION, 1, (tensor,), (outputs[place],)))
    operators = [
        replace(operator, index=i) for i, operator in enumerate([*before, *subgraph.operators, *after])
    ]
    wrapped = replace(
        subgraph,
        tensors=tuple(tensors),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        operators=tuple(operators),
    )
    model = replace(read_model(one.model), subgraphs=(wrapped,), signatures=())
    halves = tuple(
        value.astype(np.float16).astype(np.float32) if value.dtype == np.float32 else value
        for value in one.inputs
    )
    return replace(one, model=write_model(model), inputs=halves)


BETWEEN = tuple(
    between_others(one)
    for one in CASES
    if one.name not in LEFT_OUT and all(np.isfinite(value).all() for value in one.inputs)
)


def check(family: Backend, one: Case) -> None:
    """Compare a branch with LiteRT but for rounding; none of it ran on the CPU."""
    found = family.outputs(one)
    assert found
    for ours, theirs in zip(found, run_litert(one.model, one.inputs, one.resolver), strict=True):
        assert np.linalg.norm(ours - theirs) <= TOLERANCE * np.linalg.norm(theirs), one.name


@pytest.fixture(scope="module")
def family(request) -> Backend:
    """Return the delegate with the cases that are run, whose kernels are compiled at once."""
    return Backend.of("gpu", GpuDelegate(FP16), asked(request, "one"))


@pytest.mark.parametrize("one", sweep(BETWEEN, *FEW))
def test_each_family_reads_and_writes_halves(family, one):
    # A sum is a step of the node in front of it, so that nothing lies between the two.
    assert kinds(one.model, precision="fp16")["float16"] >= (1 if one.name == "add_broadcast" else 2)
    check(family, one)


@pytest.mark.parametrize("adapter", ["Vulkan", rarely("OpenGL")])
@pytest.mark.parametrize("names", [("one_row",), rarely(None)], ids=["few", "all"])
def test_halves_are_read_and_written_through_webgpu(adapter, names):
    try:
        delegate = load_delegate("gpu", {**FP16, "backend": "webgpu", "device": adapter})
    except (DelegateError, DeviceError) as error:
        absent(f"no WebGPU adapter of {adapter}: {error}")
    assert delegate.describe()["arithmetic"] == "float32; weights and activations are stored in fp16"
    chosen = [one for one in BETWEEN if names is None or one.name in names]
    assert chosen
    family = Backend.of("gpu", delegate, chosen)
    for one in chosen:
        check(family, one)


def pools(channels: int) -> bytes:
    """Build two means of windows, of which the first leaves its own for the second."""
    build = ModelBuilder()
    mean = build.op(Op.AVERAGE_POOL_2D, [build.input(1, 3, 3, channels)], (1, 2, 2, channels), **WINDOW)
    return write_model(build.build(build.op(Op.AVERAGE_POOL_2D, [mean], (1, 1, 1, channels), **WINDOW)))


NUMBERS = {
    1 / 3: 0.33325195,
    # A tie goes to the even neighbour.
    1 + 2**-11: 1.0,
    1 + 3 * 2**-11: 1 + 2**-9,
    # Numbers without a leading one, down to the smallest.
    2**-24: 2**-24,
    3 * 2**-25: 2**-23,
    -0.0: -0.0,
    # Beyond the largest there is the largest.
    1e6: 65504.0,
    -3e38 / 4: -65504.0,
    np.inf: 65504.0,
    np.nan: np.nan,
}


@pytest.mark.parametrize("backend", [{}, {"backend": "webgpu"}], ids=["opencl", "webgpu"])
def test_a_number_is_rounded_to_the_nearest_half_and_never_becomes_infinite(backend):
    try:
        delegate = load_delegate("gpu", {**FP16, **backend})
    except (DelegateError, DeviceError) as error:
        absent(f"no device of {backend}: {error}")
    given, expected = (np.float32(list(numbers)) for numbers in (NUMBERS.keys(), NUMBERS.values()))
    interpreter = Interpreter(model_content=pools(len(given)), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert interpreter.delegation.delegated_ops == 2
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.tile(given, (1, 3, 3, 1)))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).reshape(-1)
    np.testing.assert_array_equal(found, expected)


def kinds(model: bytes, **options: object) -> dict[str, int]:
    """Return how many buffers of floats of each width the plan of a model has for an assumed GPU."""
    steps = model_plan(read_model(model), planner_of("gpu", {**options}, device_class="gpu")).steps
    values = [value for step in steps if step.plan for value in step.plan.values]
    return {kind: sum(value.type == kind for value in values) for kind in ("float16", "float32")}


def test_what_callers_see_stays_as_it_is_and_no_other_precision_has_halves():
    model = pools(16)
    assert kinds(model, precision="fp16") == {"float16": 1, "float32": 2}
    for precision in ("fp32", "bf16"):
        assert kinds(model, precision=precision) == {"float16": 0, "float32": 3}


def test_a_buffer_that_a_kernel_of_words_reads_stays_one_of_floats():
    build = ModelBuilder()
    rows = build.op(Op.NEG, [build.input(6, 16)], (6, 16))
    taken = build.op(Op.GATHER, [rows, build.input(3, dtype=np.int32)], (3, 16), axis=0, batch_dims=0)
    model = write_model(build.build(build.op(Op.NEG, [taken], (3, 16))))
    assert kinds(model, precision="fp16")["float16"] == 0
