from dataclasses import fields

import pytest

from runtime.api.gpu_options import GpuOptions
from runtime.delegates.gpu.settings.options import Options, parse_options
from runtime.errors import DelegateError

ALWAYS = (
    "allow_src_quantized_fc_conv_ops", "benchmark_mode", "constant_tensor_sharing",
    "hint_fully_delegated_to_single_delegate", "hint_waiting_for_completion", "infinite_float_capping",
    "madvise_original_shared_tensors",
)  # fmt: skip
"""What this delegate does in any case."""


def test_no_options_are_the_defaults():
    assert parse_options(None) == parse_options({}) == Options()
    assert Options().max_delegated_partitions == 1


def test_texts_of_a_command_line_are_understood():
    given = {"threads": "2", "require_full_delegation": "true", "device": "1", "tuning": "none"}
    options = parse_options(given)
    assert (options.threads, options.require_full_delegation, options.device, options.tuning) == (
        2,
        True,
        1,
        "none",
    )


def test_unknown_option_names_the_nearest():
    with pytest.raises(DelegateError, match=r"unknown option 'tunning'; did you mean 'tuning'"):
        parse_options({"tunning": "fast"})
    with pytest.raises(DelegateError, match=r"unknown option 'zzz'; known: .*precision.*tuning"):
        parse_options({"zzz": 1})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("precision", "int4", "must be one of fp32, tf32, fp16, bf16, int8; got 'int4'"),
        ("tuning", "slow", "must be one of none, fast, exhaustive; got 'slow'"),
        ("threads", 0, "whole number of at least 1; got 0"),
        ("threads", "two", "whole number of at least 1; got 'two'"),
        ("threads", True, "whole number of at least 1; got True"),
        ("max_delegated_partitions", "-1", "whole number of at least 1"),
        ("min_nodes_per_partition", 0, "whole number of at least 1"),
        ("last_delegate_node_index", -1, "whole number of at least 0"),
        ("require_full_delegation", "maybe", "must be true or false; got 'maybe'"),
        ("device", 1.5, "must be a device's name, id or index; got 1.5"),
        ("cache_dir", 3, "must be a text; got 3"),
    ],
)
def test_a_value_that_is_not_allowed_is_an_error(name, value, text):
    with pytest.raises(DelegateError, match=text):
        parse_options({name: value})


def test_a_lossy_precision_contradicts_a_loss_that_is_forbidden():
    with pytest.raises(DelegateError, match="precision 'bf16' rounds weights, which precision_loss_allowed="):
        parse_options({"precision": "bf16", "precision_loss_allowed": False})
    assert parse_options({"precision": "fp32", "precision_loss_allowed": "true"}).precision == "fp32"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"is_precision_loss_allowed": 1}, {"precision_loss_allowed": True}),
        ({"is_precision_loss_allowed": -1}, {"precision_loss_allowed": None}),
        ({"allow_precision_loss": "false"}, {"precision_loss_allowed": False}),
        ({"inference_preference": 0}, {"tuning": "none"}),
        (
            {"inference_preference": "TFLITE_GPU_INFERENCE_PREFERENCE_SUSTAINED_SPEED"},
            {"tuning": "exhaustive"},
        ),
        ({"inference_preference": "balanced"}, {"tuning": "fast"}),
        ({"inference_priority1": 1}, {"precision_loss_allowed": False, "memory": "fast"}),
        ({"inference_priority1": "MIN_LATENCY"}, {"precision_loss_allowed": True, "memory": "fast"}),
        (
            {"inference_priority1": "3", "inference_priority2": "TFLITE_GPU_INFERENCE_PRIORITY_MIN_LATENCY"},
            {"precision_loss_allowed": True, "memory": "least"},
        ),
        (
            {"inference_priority2": 3, "inference_priority3": 2},
            {"precision_loss_allowed": False, "memory": "least"},
        ),
        ({"experimental_flags": 1}, {"enable_quantization": True}),
        ({"experimental_flags": "2"}, {"enable_quantization": False}),
        (
            {"experimental_flags": 9, "serialization_dir": "/a", "model_token": "m"},
            {"enable_quantization": True, "serialization_dir": "/a", "model_token": "m"},
        ),
        ({"gpu_invoke_loop_times": 1, "max_delegated_partitions": 2}, {"max_delegated_partitions": 2}),
        ({"tuning": "fast", "inference_preference": 2}, {"tuning": "fast"}),
        ({"wait_type": "do_not_wait"}, {"wait_type": "do_not_wait"}),
    ],
)
def test_litert_s_options_have_their_effect(given, expected):
    options = parse_options(given)
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"inference_preference": 3}, r"one of 0 \(FAST_SINGLE_ANSWER\), 1 \(SUSTAINED_SPEED\), 2 .*; got 3"),
        ({"inference_preference": True}, "'inference_preference' must be one of"),
        ({"inference_priority1": 0}, "AUTO may only stand behind"),
        ({"inference_priority2": 0, "inference_priority3": 2}, "MAX_PRECISION, AUTO, MIN_LATENCY: AUTO may"),
        ({"inference_priority1": 2, "inference_priority2": 2}, "each priority may be given once"),
        ({"experimental_flags": 16}, r"a sum of 1 \(ENABLE_QUANT\), 2 .*; got 16"),
        ({"experimental_flags": 4}, "GL_ONLY .* asks for OpenGL"),
        ({"experimental_flags": 9, "serialization_dir": "/a"}, "needs serialization_dir and model_token"),
        (
            {"experimental_flags": 1, "serialization_dir": "/a"},
            "serialization_dir needs ENABLE_SERIALIZATION",
        ),
        ({"gpu_invoke_loop_times": 4}, "must be 1, got 4"),
        ({"tuning": "none", "inference_preference": 1}, "'tuning' and 'inference_preference' contradict"),
        ({"is_precision_loss_allowed": 0, "inference_priority1": 2}, "contradict each other: precision_loss"),
        ({"inference_priority": 2}, "did you mean 'inference_priority"),
        ({"wait_type": "sleepy"}, "one of passive, active, aggressive, do_not_wait; got 'sleepy'"),
        ({"memory": "small"}, "must be one of fast, least; got 'small'"),
        ({"context": "mine"}, "must be a pyopencl.Context of one device, got 'mine'"),
    ],
)
def test_litert_s_options_are_refused_with_what_is_allowed(given, text):
    with pytest.raises(DelegateError, match=text) as caught:
        parse_options(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"enforce_f32": True}, {"precision_loss_allowed": False}),
        ({"precision": "fp16"}, {"precision": "fp16"}),
        ({"precision": "fp16_with_fp32_accumulation"}, {"precision": "fp16"}),
        ({"wait_type": "active"}, {"wait_type": "active"}),
        ({"backend": "opengl"}, {"backend": "opengl"}),
        (
            {"serialization_dir": "/a", "model_cache_key": "m"},
            {"serialization_dir": "/a", "model_token": "m"},
        ),
        ({"serialize_program_cache": False}, {"cache_dir": ""}),
        ({"preferred_device_substr": "NVIDIA"}, {"device": "NVIDIA"}),
        ({"infinite_float_capping": True, "constant_tensor_sharing": True}, {}),
        ({"delegate_options": {"tuning": "none"}, "enforce_f32": True}, {"tuning": "none"}),
    ],
)
def test_options_of_a_compiled_model_become_the_delegate_s(given, expected):
    found = GpuOptions(**given).for_delegate()
    assert found.items() >= expected.items()
    parse_options(found)


def has_effect(options: GpuOptions) -> bool:
    try:
        return bool(options.for_delegate())
    except DelegateError:
        return False


OPTIONS = [option for option in fields(GpuOptions) if option.name not in ALWAYS]


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_of_a_compiled_model_has_its_effect_or_is_refused(option):
    other = {bool: not option.default, int: 7, tuple: ("x",)}.get(type(option.default), "x")
    if option.default is None and option.name.endswith("fd"):
        other = 7
    if option.name == "delegate_options":
        other = {"tuning": "none"}
    changed = GpuOptions(**{option.name: other})
    if not has_effect(changed):
        with pytest.raises(DelegateError, match=rf"^gpu options: {option.name}[^\n]*$"):
            changed.for_delegate()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"backend": "metal"}, "backend must be one of automatic, opencl, webgpu, opengl; got 'metal'"),
        ({"buffer_storage_type": "texture_2d"}, "tensors lie in buffers"),
        ({"priority": "high"}, "priority 'high' is not there"),
        ({"kernel_batch_size": 4}, "kernel_batch_size=4: a run is enqueued as a whole"),
        (
            {"wait_type": "active", "delegate_options": {"wait_type": "passive"}},
            "delegate_options has wait_type=",
        ),
        ({"enforce_f32": True, "precision": "fp16"}, "precision 'fp16' rounds weights"),
    ],
)
def test_what_a_compiled_model_cannot_do_is_refused_with_the_reason(given, text):
    with pytest.raises(DelegateError, match=text):
        parse_options(GpuOptions(**given).for_delegate())
