"""Kernels for GPUs, compiled for NVIDIA, AMD and Intel on a machine without any."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from benchmarks import gpu_static
from benchmarks.gpu_compilers import (
    AMD,
    INSTALL,
    INSTALL_OCLOC,
    INTEL,
    MATRIX_UNITS,
    NVIDIA,
    TARGETS,
    Tools,
)
from benchmarks.gpu_machine_code import Processor, ToolError, fma_share, of_amd
from benchmarks.gpu_plans import FOR_INTEL, MATRICES, PRECISIONS
from benchmarks.gpu_record import Record
from benchmarks.gpu_rows import Row
from runtime.delegates.gpu.alternatives import lowered
from runtime.delegates.gpu.layout.source import Kernel, assemble
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.model.schema import BuiltinOperator as Op
from runtime.tools.priming import partitions_of
from tests import needs
from tests.runtime.ops.cases import random
from tests.runtime.ops.movement.test_sequence import top
from tests.runtime.ops.operands import flags
from tests.runtime.ops.recurrent.test_integer_lstm import INTEGER_VARIANTS
from tests.runtime.ops.recurrent.test_integer_lstm import model as integer_lstm
from tests.runtime.ops.recurrent.test_lstm import float_sequences
from tests.runtime.ops.recurrent.test_rnn import float_rnns
from tests.runtime.ops.recurrent.test_svdf import float_filters
from tests.runtime.ops.recurrent.test_svdf import integer as integer_filters
from tests.runtime.ops.reduction.test_arg_extreme import between, extreme
from tests.services.kept_gpu_code import compile_once
from tests.sweeps import rarely

KERNEL = """
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sums(__global const float *in, __global float *out)
{
    const int item = get_global_id(0);
    float sum[48];
    %s
    for (int i = 0; i < 48; i++)
        sum[i] = in[item * 48 + i];
    for (int k = 0; k < 64; k++) {
        const float v = in[k];
        %s
        for (int i = 0; i < 48; i++)
            sum[i] = sum[i] * v + v;
    }
    %s
    for (int i = 0; i < 48; i++)
        out[item * 48 + i] = sum[i];
}
"""


NETWORKS = ("torchvision_squeezenet1_1", "hf_tinyroberta_squad2")
"""A convolutional network, and a transformer."""

OUTSIDE = (
    between(Op.ARG_MAX).model,
    extreme("bytes", Op.ARG_MIN, flags(5, 70), 1, np.int64).model,
    top("few", random(3, 70), 4).model,
    *float_sequences()[0][-6::2],
    *float_rnns()[0][-2:],
    float_filters()[0][-1],
    integer_lstm(INTEGER_VARIANTS["cifg_everything"], "time_major")[0],
    integer_filters(1)[0],
)
"""Models of operators that have kernels of work-groups, but are in no network of the zoo."""


@pytest.fixture
def kept_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile what no earlier run of the suite has kept."""
    monkeypatch.setattr(Tools, "compile", compile_once)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return compilers(tmp_path_factory.mktemp("gpu"), (*NVIDIA, *AMD))


@pytest.fixture(scope="module")
def all_tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return compilers(tmp_path_factory.mktemp("gpu"), TARGETS)


def compilers(folder: Path, targets: tuple[str, ...]) -> Tools:
    try:
        return Tools.found(folder, targets)
    except ToolError as error:
        needs.absent(str(error))


@pytest.mark.parametrize("target", ["sm_80", "gfx90a"])
def test_an_array_in_a_rolled_loop_costs_memory_and_an_unrolled_one_registers(
    tools: Tools, target: str
) -> None:
    found = {}
    for hint in ("unroll 1", "unroll"):
        text = KERNEL % ((f'_Pragma("{hint}")',) * 3)
        found[hint] = tools.compile(Kernel(f"sums_{len(hint)}", text, group=(256,)), (target,))[target]
    assert found["unroll 1"].stack_bytes >= 192
    assert (found["unroll"].stack_bytes, found["unroll"].spill_bytes) == (0, 0)
    assert found["unroll"].registers > 48
    assert found["unroll"].fma_share > 0.7


@pytest.mark.parametrize(("count", "fits"), [("48", True), ("200", False)])
def test_more_sums_than_an_intel_thread_has_registers_are_spilled(
    all_tools: Tools, count: str, *, fits: bool
) -> None:
    text = KERNEL.replace("48", count) % (('_Pragma("unroll")',) * 3)
    (target,) = INTEL
    found = all_tools.compile(Kernel(f"sums_{count}", text, group=(256,)), (target,))[target]
    assert (found.stack_bytes == 0, found.spill_bytes == 0) == (fits, fits)
    assert found.registers in (32, 64, 128)
    assert found.groups in (4, 8, 16)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("kept_code")
@pytest.mark.parametrize("network", NETWORKS)
def test_every_kernel_of_a_network_stays_in_registers_in_each_precision(network: str) -> None:
    try:
        rows = gpu_static.checked((network,), ("sm_80", "gfx90a", "dg2")).rows
    except ToolError as error:
        needs.absent(str(error))
    assert len(rows) > 10
    assert {name: faults for row in rows if (faults := row.unexcused()) for name in [row.name]} == {}
    in_matrices = {f"{precision}, matrices" for precision in MATRICES}
    # Without matrix units there is no TF32.
    for precision in {*PRECISIONS, FOR_INTEL, *in_matrices} - {"tf32"}:
        assert sum(row.flops.get(precision, 0.0) for row in rows) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.usefixtures("kept_code")
@pytest.mark.parametrize("models", [OUTSIDE[:2], rarely(OUTSIDE)], ids=["few", "all"])
def test_kernels_that_no_network_of_the_zoo_needs_stay_in_registers(
    all_tools: Tools, tmp_path: Path, models: tuple[bytes, ...]
) -> None:
    faults, files = {}, [tmp_path / f"{place}.tflite" for place in range(len(models))]
    for file, model in zip(files, models, strict=True):
        file.write_bytes(model)
    planner = GpuPlanner({"cost_aware_partitioning": False}, "gpu")
    parts = list(partitions_of(planner, files))
    assert len(parts) == len(files)
    nodes = (
        node
        for part in parts
        for node in lowered(part, ASSUMED["gpu"], planner.options, planner.way_of_partition(part))[1]
    )
    for kernel in assemble((one for node in nodes for one in node[0].launches), ASSUMED["gpu"]).kernels:
        threads = prod(kernel.group)
        found = all_tools.compile(kernel, ("sm_80", "gfx90a", "dg2"))
        faults[kernel.name] = Row(kernel.name, threads, {}, found).unexcused()
        # Copies of bytes between layouts have no kernel of work-groups.
        assert threads > 1 or kernel.name.startswith("run_f32_reshape_copy_")
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_a_kernel_that_the_compiler_refuses_is_named(tools: Tools) -> None:
    with pytest.raises(ToolError, match=r"broken: clang.*: .*error"):
        tools.compile(Kernel("broken", "__kernel void broken( {"), ("sm_80",))


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "groups"),
    [(256, 128, 0, 2), (256, 129, 0, 1), (256, 32, 0, 8), (64, 16, 0, 32), (256, 32, 48 << 10, 3)],
)
def test_groups_of_a_multiprocessor(threads: int, registers: int, shared: int, groups: int) -> None:
    assert NVIDIA["sm_80"].groups(threads, registers, shared) == groups
    assert Processor(65536, 1024, 1 << 16).groups(256, 16, 0) == 4


def test_multiply_adds_are_counted_in_the_block_with_most_of_them() -> None:
    text = "$L1:\n fma.rn.f32 %f1;\n add.s32 %r1;\n$L2:\n fma.rn.f32 %f1;\n fma.rn.f32 %f2;\n bra $L2;\n"
    assert fma_share(text) == 0.6667
    assert fma_share("add.s32 %r1;") == 0.0
    assert (
        fma_share("v_dual_fmac_f32 v1, v2, v3 :: v_dual_fmac_f32 v4, v5, v6\nv_add_f32 v1, v2, v3") == 0.6667
    )


def test_assembly_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ToolError, match="NumVgprs"):
        of_amd("s_endpgm")


def test_missing_compilers_are_all_named_with_what_installs_them_before_anything_is_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin/python"))
    monkeypatch.setattr("sys.argv", ["gpu_static"])
    monkeypatch.setattr(gpu_static, "functions_of", lambda _: pytest.fail("it has planned"))
    assert gpu_static.main() == 2
    said = capsys.readouterr().err
    assert "no clang" in said
    assert "no ocloc" in said
    assert INSTALL in said
    assert INSTALL_OCLOC in said


def test_a_compiler_of_other_targets_is_not_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError) as told:
        Tools.found(tmp_path, ("gfx90a",))
    assert "no clang" in str(told.value)
    assert "ptxas" not in str(told.value).split(";")[0]
    assert "ocloc" not in str(told.value)


def test_the_committed_table_is_of_every_target_and_has_no_unexplained_fault() -> None:
    rows = Record.read().rows.values()
    assert len(rows) > 400
    in_matrices = [row for row in rows if "_matrix_" in row.name]
    assert in_matrices
    for row in rows:
        plain = set(INTEL) if FOR_INTEL in row.flops else set()
        plain |= {*NVIDIA, *AMD} if set(row.flops) != {FOR_INTEL} else set()
        assert set(row.targets) == (set(MATRIX_UNITS) if row in in_matrices else plain)
        assert row.unexcused() == {}
        assert row.digest
        assert all(row.runs[target].compilers[target] for target in row.targets)
    assert set(AMD) < set(TARGETS)
