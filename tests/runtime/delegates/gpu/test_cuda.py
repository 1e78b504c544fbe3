"""The backend of CUDA, judged without a GPU and its driver: nothing stands in for them."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.gpu_compilers import assembler
from benchmarks.gpu_machine_code import ToolError
from benchmarks.gpu_plans import functions_of
from delegate_farm import load_delegate
from runtime.delegates.gpu.backends.cuda import driver as cuda
from runtime.delegates.gpu.backends.cuda import faults
from runtime.delegates.gpu.backends.cuda.device import CudaDevice, OpenedDevice, choose_device
from runtime.delegates.gpu.backends.cuda.ptx import STATIC_BYTES, Compiler, options, with_room
from runtime.delegates.gpu.backends.cuda.recording import PARAMETERS, tabulated
from runtime.delegates.gpu.layout.source import Kernel, assemble_functions
from runtime.delegates.gpu.planning.assumed import ASSUMED
from runtime.errors import (
    DelegateError,
    DelegateMissingError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
)
from tests import needs
from tests.sweeps import rarely

H200: Final = CudaDevice(0, "NVIDIA H200", "1b" * 16, "0000:3b:00.0", (9, 0), 0)
T4: Final = CudaDevice(1, "Tesla T4", "a4" * 16, "0000:af:00.0", (7, 5), 0)

BIG: Final = """
__kernel void big(__global uchar *arena, __global const uchar *constants, __global const int *table,
    const int layer)
{
    __local float a[12288];
    __local float4 b[1024];
    const int i = get_local_id(0);
    a[i + layer] = i;
    b[i] = (float4)(layer);
    barrier(CLK_LOCAL_MEM_FENCE);
    ((__global float *)arena)[i] = a[63 - i + layer] + b[(i + 1) % 64].x + b[3].y + a[5];
}
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    try:
        return Compiler.found()
    except DelegateError as error:
        needs.absent(str(error))


def assembles(text: str, folder: Path, target: str) -> str:
    """Return what NVIDIA's assembler says against a text; empty where it takes it."""
    try:
        command = [assembler(), "-O0", f"-arch={target}", "-", "-o", str(folder / "code")]
    except ToolError as error:
        needs.absent(str(error))
    (folder / "text.ptx").write_text(text)
    command[3] = str(folder / "text.ptx")
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("network", ["torchvision_squeezenet1_1", rarely("hf_tinyroberta_squad2")])
def test_every_kernel_of_a_network_becomes_code_with_the_parameters_that_are_passed(
    compiler: Compiler, tmp_path: Path, network: str
) -> None:
    kernels = assemble_functions(functions_of((network,), ("fp32",)), ASSUMED["gpu"]).kernels
    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda kernel: compiler.ptx(kernel, (8, 0)).text, kernels))
    assert len(texts) > 8
    passed = [(f".u{8 * ctypes.sizeof(kind)}", place) for place, kind in enumerate(PARAMETERS)]
    for kernel, text in zip(kernels, texts, strict=True):
        told = re.findall(rf"\.param (\.\w+) {kernel.name}_param_(\d+)", text)
        assert [(kind.replace(".s", ".u"), int(place)) for kind, place in told] == passed, kernel.name
        assert "%envreg" not in text, f"{kernel.name} reads what OpenCL's driver alone sets"
    # One module of all: a head, then each text without its own.
    head = texts[0][: texts[0].index(".address_size")] + ".address_size 64\n"
    module = head + "".join(text.partition(".address_size 64")[2] for text in texts)
    assert assembles(module, tmp_path, "sm_90") == ""


def test_shared_memory_above_the_fixed_limit_is_asked_for_at_the_launch(
    compiler: Compiler, tmp_path: Path
) -> None:
    ptx = compiler.ptx(Kernel("big", BIG), (8, 0))
    assert ptx.dynamic_bytes == 4 * 12288 + 16 * 1024 > STATIC_BYTES
    assert assembles(ptx.text, tmp_path, "sm_80") == ""
    # The same arrays with fixed sizes are what the assembler refuses.
    fixed = ptx.text.replace(
        ".extern .shared .align 16 .b8 in_group[];", ".shared .align 16 .b8 in_group[65536];"
    )
    assert "too much shared data" in assembles(fixed, tmp_path, "sm_80")
    small = ".visible .entry a(\n)\n{\n\t.shared .align 4 .b8 a_$_b[1024];\n\tret;\n}\n"
    assert with_room(small).text == small


def test_a_kernel_of_many_registers_says_how_many_of_its_groups_shall_run_at_a_time(
    compiler: Compiler, tmp_path: Path
) -> None:
    text = compiler.ptx(Kernel("big", BIG, group=(16, 16), together=2), (8, 0)).text
    assert text.count(")\n.reqntid 16, 16, 1\n.minnctapersm 2\n{") == 1
    assert assembles(text, tmp_path, "sm_80") == ""
    assert ".reqntid" not in compiler.ptx(Kernel("big", BIG, group=(16, 16)), (8, 0)).text


def declared() -> dict[str, str]:
    """Return the parameters of each function that NVIDIA's header declares, under the exported names."""
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else package.submodule_search_locations or []
    header = next((path for one in folders for path in Path(one).glob("*/include/cuda.h")), None)
    preprocessor = shutil.which("clang-15") or shutil.which("cc")
    if header is None or preprocessor is None:
        needs.absent("cuda.h (requirements/gpu-static.lock), or a preprocessor of C")
    command = [preprocessor, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", str(header)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    constants = dict(re.findall(r"\b(CU\w+)\s*=\s*(0x[0-9a-fA-F]+|\d+)\b", text))
    functions = dict(re.findall(r"CUresult\s+(cu\w+)\s*\(([^;]*)\);", text))
    return constants | functions


def spelled(kind: Any) -> str:
    """Return the class of a parameter's type: the size of a number, or what a pointer points to."""
    if kind in (ctypes.c_void_p, ctypes.c_char_p):
        return "pointer"
    if hasattr(kind, "_type_") and not isinstance(kind._type_, str):
        return "pointer"
    return f"{ctypes.sizeof(kind)} bytes"


SIZES: Final = {
    "int": 4, "unsigned int": 4, "CUdevice": 4, "size_t": 8, "CUdeviceptr": 8, "CUdeviceptr_v2": 8,
    "unsigned char": 1, "unsigned long long": 8, "cuuint64_t": 8,
}  # fmt: skip
HANDLES: Final = {
    "CUcontext",
    "CUmodule",
    "CUfunction",
    "CUstream",
    "CUevent",
    "CUgraph",
    "CUgraphExec",
    "CUlinkState",
}


def of_header(parameter: str) -> str:
    """Classify a parameter of the header as `spelled` does one of ours."""
    if "*" in parameter or "[" in parameter:
        return "pointer"
    kind = re.sub(r"\bconst\b|\b\w+$", "", parameter.strip()).strip()
    if kind in HANDLES:
        return "pointer"
    # What is left are enumerations, which are ints.
    return f"{SIZES.get(kind, 4 if kind.startswith('CU') else 0)} bytes"


def test_the_table_of_functions_is_that_of_nvidia_s_header() -> None:
    header = declared()
    for name, kinds in cuda.FUNCTIONS.items():
        parameters = [one for one in header[name].split(",") if one.strip() not in ("", "void")]
        assert [spelled(kind) for kind in kinds] == [of_header(one) for one in parameters], name
    assert {name: int(header[name], 0) for name in cuda.CONSTANTS} == dict(cuda.CONSTANTS)


def test_without_the_driver_s_library_the_backend_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda-of-nowhere.so.1")
    cuda.driver.cache_clear()
    with pytest.raises(DelegateError, match=r"libcuda-of-nowhere.*install the driver; in a container"):
        load_delegate("gpu", {"backend": "cuda", "cache_dir": ""})


def test_without_a_compiler_the_line_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DelegateMissingError, match=r"no clang; .*apt-get install .*clang-15 libclc-15"):
        Compiler.found()


def test_a_device_that_is_older_than_every_target_is_refused() -> None:
    assert "sm_80" in options((9, 0))
    assert "sm_75" in options((7, 5))
    with pytest.raises(DelegateError, match=r"needs compute capability 6.0 or more, and the device has 5.2"):
        options((5, 2))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(None, H200), (1, T4), ("t4", T4), ("a4" * 16, T4), ("GPU-a4a4a4a4-a4a4-a4a4-a4a4-a4a4a4a4a4a4", T4)],
)
def test_a_device_is_named_by_index_name_or_uuid(wanted: str | int | None, found: CudaDevice) -> None:
    assert choose_device(wanted, [H200, T4]) == found


@pytest.mark.parametrize("wanted", [2, "H100", "GPU-00"])
def test_a_device_that_is_not_there_is_told_with_those_that_are(wanted: str | int) -> None:
    with pytest.raises(DeviceError, match=r"there are 0: NVIDIA H200 \(1b.*; 1: Tesla T4"):
        choose_device(wanted, [H200, T4])


def test_an_error_of_a_kernel_loses_the_device_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "_lost", {})
    opened = OpenedDevice(T4, 0, ASSUMED["gpu"])

    def told(name: str) -> DeviceError:
        code = cuda.CONSTANTS[f"CUDA_ERROR_{name}"]
        error = cuda.CudaError(code, f"CUDA_ERROR_{name}", "words", "cuStreamSynchronize")
        return faults.device_error(error, "running", opened, "it needs 5 MiB")

    full = told("OUT_OF_MEMORY")
    assert isinstance(full, DeviceMemoryError)
    assert "it needs 5 MiB" in str(full)
    assert isinstance(told("ILLEGAL_ADDRESS"), DeviceLostError)
    with (
        pytest.raises(DeviceLostError, match=r"was lost in this process .*cuStreamSynchronize"),
        faults.device_errors("running again", opened),
    ):
        pytest.fail("nothing runs on a lost device")


def test_the_table_of_layers_says_where_each_row_begins() -> None:
    table = tabulated([[7, 1, 2], [8], [9, 3]])
    assert [[int(table[table[layer] + cell]) for cell in range(2)] for layer in (0, 2)] == [[7, 1], [9, 3]]
    assert int(table[table[1]]) == 8
