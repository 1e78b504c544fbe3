"""The translator of the portable subset of OpenCL C: what it writes, refuses, and what its text computes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from tests.needs import absent

if find_spec("wgpu") is None:
    absent("the extra webgpu is not installed")

from runtime.delegates.gpu.backends.webgpu.wgsl.module import translate
from runtime.delegates.gpu.backends.webgpu.wgsl.parse import OutsideSubsetError
from runtime.delegates.gpu.layout.source import portable_source
from runtime.errors import DelegateError, DeviceError

KERNEL = """
__kernel void run_it(__global float *out, __global const float *in, __global const int *whole)
{{
#line 1 "it.cl"
    {body}
}}
"""


def translated(body: str, before: str = "") -> str:
    """Return the function's text of a kernel with this body, one statement per line, without indentation."""
    text = translate(before + KERNEL.format(body=body), "run_it").text
    function = text[text.index("fn run_it_0_(") :]
    lines = function[function.index("{\n") + 2 : function.index("\n}\n")].splitlines()
    return "\n".join(line.strip() for line in lines)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("float x = 1;", "var x_: f32 = 1.0;"),
        ("const uint x = 3;", "var x_: u32 = 3u;"),
        ("int x = -7 / 2 + (1 << 4);", "var x_: i32 = 13;"),
        ("float4 v = (float4)(2.0f); v.x = v.s3;", "var v_: vec4<f32> = vec4<f32>(2.0f);\nv_.x = v_.w;"),
        ("int i = 1; i += 2; i++;", "var i_: i32 = 1;\ni_ = (i_ + 2);\ni_ = (i_ + 1);"),
        ("bool b = 1 < 2; int i = b;", "var b_: bool = true;\nvar i_: i32 = select(i32(0), i32(1), b_);"),
        ("float x = 1.0f; int i = (int)x;", "var x_: f32 = 1.0f;\nvar i_: i32 = i32(x_);"),
        ("float x = as_float(1);", "var x_: f32 = float_of_bits(1u);"),
        ("uint u = 1; int i = u >> 2;", "var u_: u32 = 1u;\nvar i_: i32 = i32((u_ >> 2u));"),
        ("float a[2 * 3]; a[1] = 2.0f;", "var a_: array<f32, 6>;\na_[1] = 2.0f;"),
        ("barrier(CLK_LOCAL_MEM_FENCE);", "workgroupBarrier();"),
        ("if (1) { int i = 0; } else { int j = 0; }", "{\nvar i_: i32 = 0;\n}"),
        (
            "int a[4];\n#pragma unroll\nfor (int i = 1; i < 4; i += 2) { a[i] = i * 2; }",
            "var a_: array<i32, 4>;\n{\na_[1] = 2;\n}\n{\na_[3] = 6;\n}",
        ),
    ],
)  # fmt: skip
def test_statements(body: str, expected: str) -> None:
    assert translated(body) == expected


@pytest.mark.parametrize(
    "loop",
    [
        "for (int i = 0; i < 2; i++) { out[i] = 0.0f; }",
        "\n#pragma unroll 2\nfor (int i = 0; i < 4; i++) { out[i] = 0.0f; }",
        "\n#pragma unroll\nfor (int i = 0; i < whole[0]; i++) { out[i] = 0.0f; }",
        "\n#pragma unroll\nfor (int i = 0; i < 4; i++) { if (in[i] > 0.0f) { break; } }",
        "\n#pragma unroll\nfor (int i = 0; i < 4; i++) { i += 1; }",
        "\n#pragma unroll\nfor (int i = 0; i < 4000; i++) { out[i] = 0.0f; }",
    ],
)
def test_a_loop_stays_one_where_its_turns_are_unknown_or_many(loop: str) -> None:
    assert translated(loop).count("loop {") == 1


VECTORS = """
    __global const float4 *from = (__global const float4 *)in;
    __global float4 *to = (__global float4 *)out;
    to[1] = from[2] + in[whole[0]];
"""


def test_a_buffer_consists_of_vectors_where_no_less_is_stored() -> None:
    text = translate(KERNEL.format(body=VECTORS), "run_it").text
    assert "out_words: array<vec4<u32>>" in text
    assert "in_words: array<vec4<u32>>" in text
    assert "whole_words: array<u32>" in text
    stored = translate(KERNEL.format(body=VECTORS + "out[0] = 1.0f;"), "run_it").text
    assert "out_words: array<u32>" in stored
    assert "in_words: array<vec4<u32>>" in stored


def test_a_choice_does_not_read_what_c_does_not_read() -> None:
    text = translated("int i = whole[0]; float x = i < 4 ? in[i] : 0.0f;")
    head, choice = text.split("\n", 1)
    assert head == "var i_: i32 = load_whole_words_i32_1((whole_ + 0));"
    assert choice.splitlines() == [
        "var made_1: f32;",
        "if ((i_ < 4)) {",
        "made_1 = load_in_words_f32_1((in_ + i_));",
        "} else {",
        "made_1 = 0.0f;",
        "}",
        "var x_: f32 = made_1;",
    ]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("float16 v;", "the type float16"),
        ("long i = 0;", "the type long"),
        ("double x = 0;", "the type double"),
        ("float x = 1.0;", "the number 1.0 of double precision"),
        ("int i = 0; int j = i++;", "p++ within an expression"),
        ("float x = lgamma(1.0f);", "the function lgamma"),
        ("float x = y;", "the name y"),
        ("in[0] = 1.0f;", "a store into a buffer that is only read"),
        (
            "float4 v = (float4)(0.0f); v.xy = v.zw;",
            "an assignment to several lanes, or to a lane in a buffer",
        ),
        ("int i = 1; switch (i) { case 1: break; }", "a statement of the kind Switch"),
        ("goto end; end: ;", "a statement of the kind Goto"),
        ("int n = 3; float a[n];", "an array whose length is not known at compile time"),
        ("__global const float *p = in; p = out;", "a pointer that moves to another buffer"),
        ("#pragma ivdep\n    int i;", "#pragma ivdep"),
        ("float2 v = (float2)(1.0f); float4 w = v;", "a vector of 2 in place of 4"),
    ],
)
def test_what_lies_outside_of_the_subset_is_refused_with_its_place(body: str, what: str) -> None:
    with pytest.raises(OutsideSubsetError) as raised:
        translated(body)
    line = 2 if "\n" in body and not body.startswith("#pragma") else 1
    assert (
        str(raised.value) == f"gpu delegate: it.cl:{line}: {what} is outside the portable subset of OpenCL C"
    )


def test_text_that_is_no_c_is_refused_with_its_file() -> None:
    with pytest.raises(DelegateError, match=r"it\.cl"):
        translated("float x = ;")
    with pytest.raises(DelegateError, match="unfinished"):
        translated("\n#error unfinished\n")
    with pytest.raises(DelegateError, match="no kernel run_other"):
        translate(KERNEL.format(body=""), "run_other")


@pytest.fixture(scope="module", params=["Vulkan", "OpenGL"])
def device(request: pytest.FixtureRequest) -> Any:
    from runtime.delegates.gpu.backends.webgpu.adapter import open_adapter

    try:
        return open_adapter(request.param.lower(), None).device
    except DeviceError as error:
        absent(f"no WebGPU adapter of {request.param}: {error}")


def computed(
    device: Any, body: str, inputs: np.ndarray, whole: np.ndarray, local: int, before: str = ""
) -> np.ndarray:
    """Return the output `out`, 64 floats, of a kernel with this body, in one work-group of `local`
    work-items.
    """
    import wgpu

    text = translate(before + KERNEL.format(body=body), "run_it").text
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    arrays = (np.full(64, -1, np.float32), inputs, whole)
    buffers = [device.create_buffer_with_data(data=array, usage=usage) for array in arrays]
    kinds = ("storage", "read-only-storage", "read-only-storage")
    layout = device.create_bind_group_layout(entries=[
        {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
        for i, kind in enumerate(kinds)
    ])  # fmt: skip
    pipeline = device.create_compute_pipeline(
        layout=device.create_pipeline_layout(bind_group_layouts=[layout]),
        compute={
            "module": device.create_shader_module(code=text),
            "entry_point": "run",
            "constants": {"local_x": local, "local_y": 1, "local_z": 1},
        },
    )
    entries = [{"binding": i, "resource": {"buffer": buffer}} for i, buffer in enumerate(buffers)]
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, device.create_bind_group(layout=layout, entries=entries))
    compute.dispatch_workgroups(1)
    compute.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(buffers[0]), np.float32)


def test_loops_pointers_and_conditions_do_what_c_does(device: Any) -> None:
    body = """
    __global const float *from = in + 2;
    __global float *to = out;
    int n = 0;
    for (int i = 0, j = 3; i < 8; i++, j--) {
        if (i == 2) continue;
        if (i == 6 && in[whole[i]] > 0.0f) break;
        *to = from[i] * j;
        to++;
        n += 1;
    }
    int left = 1;
    do { left += 1; } while (left < 3);
    while (left > 0) { out[20 + left] = (float)left; left--; }
    out[30] = n;
    out[31] = (n > 2 || in[1 << 30] > 0.0f) ? whole[1] : -1;
    out[32] = 7 / -2;
    out[33] = (-7) % 3;
    out[34] = (float)(0xffffffffu >> 28);
    float4 v = vload4(1, in);
    vstore4(v.wzyx + (float4)(v.lo, 0.5f, 1.0f), 10, out);
    out[50] = (float)((uint)whole[2] / 3u);
    out[51] = select(1.0f, 2.0f, whole[0] == 6);
    out[52] = dot(v, (float4)(1.0f)) > 3 ? 5 : 6;
    """
    inputs = np.arange(64, dtype=np.float32)
    whole = np.array([6, 5, -6, 3, 2, 1, 0, 9], np.int32)
    found = computed(device, body, inputs, whole, 1)
    expected = np.full(64, -1, np.float32)
    expected[:7] = [inputs[2 + i] * (3 - i) for i in range(8) if i != 2]
    expected[21:24] = [1, 2, 3]
    expected[30:35] = [7, 5, -3, -1, 15]
    expected[40:44] = [7 + 4, 6 + 5, 5 + 0.5, 4 + 1]
    expected[50:53] = [(2**32 - 6) // 3, 2, 5]
    np.testing.assert_array_equal(found, expected)


def test_work_items_share_an_array_between_barriers(device: Any) -> None:
    body = """
    __local float row[16];
    const int lane = (int)get_local_id(0);
    row[lane] = in[lane] * (int)get_local_size(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    out[lane] = row[15 - lane];
    """
    found = computed(device, body, np.arange(64, dtype=np.float32), np.zeros(4, np.int32), 16)
    np.testing.assert_array_equal(found[:16], np.arange(15, -1, -1) * 16)
    np.testing.assert_array_equal(found[16:], -1)


def test_numbers_and_vectors_of_one_buffer(device: Any) -> None:
    whole = np.array([0, 5, 0, 0], np.int32)
    inputs = np.arange(64, dtype=np.float32)
    for body, first in ((VECTORS, -1.0), (VECTORS + "out[0] = in[whole[1]];", 5.0)):
        found = computed(device, body, inputs, whole, 1)
        np.testing.assert_array_equal(found[:9], [first, -1, -1, -1, 8, 9, 10, 11, -1])


def test_divisions_by_reciprocals_are_exact(device: Any) -> None:
    """`quotient` of the portable kernels, whose products have 63 bits."""
    from runtime.delegates.gpu.graph.parameters import reciprocal

    numbers = [0, 1, 6, 7, 99_999, 2**24 + 3, 2**30 + 12_345, 2**31 - 1]
    rows = [(n, d, *reciprocal("D", d).values()) for n in numbers for d in (1, 3, 7, 641, 2**31 - 1)][:36]
    body = """
    const int i = (int)get_local_id(0);
    out[i] = as_float(quotient(whole[i * 4], whole[i * 4 + 2], whole[i * 4 + 3]));
    """
    table = np.array(rows, np.int64).astype(np.int32)
    found = computed(device, body, np.zeros(4, np.float32), table, len(rows), portable_source())
    assert found[: len(rows)].view(np.int32).tolist() == [n // d for n, d, *_ in rows]


def test_functions_that_wgsl_lacks(device: Any) -> None:
    from math import erf

    x = np.linspace(-4, 4, 64).astype(np.float32)
    item = "const int i = (int)get_local_id(0); "
    whole = np.zeros(4, np.int32)
    near = computed(device, item + "out[i] = expm1(in[i]);", x, whole, 64)
    np.testing.assert_allclose(near, np.expm1(x), rtol=2e-6)
    curve = computed(device, item + "out[i] = erf(in[i]);", x, whole, 64)
    np.testing.assert_allclose(curve, [erf(v) for v in x], atol=4e-7)
    rest = computed(device, item + "out[i] = fmod(in[i], 1.5f);", x, whole, 64)
    np.testing.assert_allclose(rest, np.fmod(x, np.float32(1.5)), atol=1e-6)


def test_a_choice_by_a_comparison_keeps_a_nan(device: Any) -> None:
    """Mesa's OpenGL made a maximum of it, which drops one."""
    x = np.resize(np.float32([np.nan, -1.0, 2.0, np.inf]), 64)
    item = "const int i = (int)get_local_id(0); const float x = in[i]; "
    for choice in ("0.0f > x ? 0.0f : x", "x < 0.0f ? 0.0f : x"):
        found = computed(device, f"{item}out[i] = {choice};", x, np.zeros(4, np.int32), 64)
        np.testing.assert_array_equal(found, np.maximum(x, 0))


def test_what_wgsl_leaves_open_is_what_c_defines(device: Any) -> None:
    special = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.0, 0.5])
    x, y = (side.reshape(-1) for side in np.meshgrid(special, special))
    item = "const int i = (int)get_local_id(0); "
    bits = np.ascontiguousarray(y).view(np.int32)
    with np.errstate(all="ignore"):
        for call, expected in (
            ("pow(in[i], as_float(whole[i]))", np.power(x, y)),
            ("atan2(in[i], as_float(whole[i]))", np.arctan2(x, y)),
            ("fmod(in[i], as_float(whole[i]))", np.fmod(x, y)),
            ("tanh(in[i])", np.tanh(x)),
            ("in[i] != as_float(whole[i]) ? 1.0f : 0.0f", x != y),
            ("in[i] == as_float(whole[i]) ? 1.0f : 0.0f", x == y),
        ):
            found = computed(device, f"{item}out[i] = {call};", x, bits, 64)
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=call)
