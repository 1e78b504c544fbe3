"""8-bit models on the GPU delegate: taken whole, near LiteRT's reference kernels, the same predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.errors import DeviceError
from runtime.judge.agreement import Expected, OutputFacts, judge
from runtime.judge.rules import Arithmetic, rule_for
from tests.models.collection import real_model, zoo_model
from tests.models.comparison import BUILTIN, REFERENCE, XNNPACK, Outputs, in_litert, random_rows, run_rows
from tests.models.pictures import labelled, picture
from tests.needs import absent
from tests.sweeps import rarely

DRAWS = 3
"""Sets of random inputs: with one, an output that is always the same could not be told from a right one."""

OPTIONS = {"tuning": "none", "persistent": "off", "cost_aware_partitioning": False}


def opened(temporary: pytest.TempPathFactory, precision: str) -> Any:
    folder = temporary.getbasetemp() / "opencl-cache"
    try:
        return load_delegate("gpu", {**OPTIONS, "precision": precision, "cache_dir": str(folder)})
    except DeviceError as error:
        return absent(f"no OpenCL device: {error}")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return opened(tmp_path_factory, "fp32")


def taken_whole(data: bytes, gpu: Any, inputs: list[list[np.ndarray]]) -> tuple[list[Outputs], Interpreter]:
    """Return the outputs of a model that the delegate takes whole, and the interpreter that ran it."""
    interpreter = Interpreter(model_content=data, experimental_delegates=[gpu])
    found = run_rows(interpreter, inputs)
    assert interpreter.delegation is not None
    assert interpreter.delegation.status == "full", str(interpreter.delegation)
    return found, interpreter


@pytest.mark.parametrize(
    "name",
    [
        "tflm_micro_speech_i8",
        rarely("mlc_ad_i8"),
        rarely("mlc_kws_dscnn_i8"),
        rarely("mlc_resnet8_i8"),
        rarely("coral_mnv1_025_128_u8"),
        rarely("coral_mnv2_10_224_u8"),
        rarely("coral_mnv2_inat_bird_u8"),
    ],
)
def test_an_8_bit_model_agrees_with_litert(name, gpu):
    data = real_model(name)
    inputs = [row for seed in range(DRAWS) for row in random_rows(data, seed)]
    found, interpreter = taken_whole(data, gpu, inputs)
    facts = [OutputFacts(o["name"], *o["quantization"]) for o in interpreter.get_output_details()]
    runs = {"xnnpack": in_litert(data, inputs, XNNPACK), "builtin": in_litert(data, inputs, BUILTIN)}
    expected = Expected(in_litert(data, inputs, REFERENCE), facts, runs)
    rule = rule_for(Arithmetic.INTEGER, integer_path=False, precision="fp32", draws=runs)
    judgement = judge(expected, found, rule)
    assert judgement.verdict == "pass", str(judgement)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern", "size", "offset"),
    [
        ("mlc_resnet8_i8", "cifar10_*.png", 32, 128),
        ("coral_mnv1_025_128_u8", "imagenet_*.jpg", 128, 0),
        ("coral_mnv2_10_224_u8", "imagenet_*.jpg", 224, 0),
    ],
)
def test_pictures_are_classified_as_by_litert_but_for_one(name, pattern, size, offset, gpu):
    """`offset`: what the model's type wants to be subtracted from the bytes of a picture."""
    data = real_model(name)
    pictures = [picture(path, (size, size))[None] for path, _ in labelled("foolbox", pattern)]
    dtype = np.int8 if offset else np.uint8
    inputs = [[(image.astype(np.int16) - offset).astype(dtype)] for image in pictures]
    found, _ = taken_whole(data, gpu, inputs)
    classes = [int(row[0].argmax()) for row in found]
    wanted = [int(row[0].argmax()) for row in in_litert(data, inputs, REFERENCE)]
    assert sum(a != b for a, b in zip(classes, wanted, strict=True)) <= 1


def zoo_or_real(name: str) -> bytes:
    return zoo_model(name) if "__" in name else real_model(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "tflm_micro_speech_i8",
        "mlc_kws_dscnn_i8",
        "mlc_ad_i8",
        "mlc_resnet8_i8",
        "torchvision_mobilenet_v2__static_int8",
        "torchvision_mobilenet_v3_small__static_int8",
        "torchvision_resnet18__static_int8",
        "hf_distilbert__static_int8",
        "coral_mnv1_025_128_u8",
        "coral_mnv2_10_224_u8",
        "coral_mnv2_inat_bird_u8",
        "coral_deeplab_dm05_u8",
    ],
)
def test_in_integers_a_model_has_the_bits_of_litert(name, tmp_path_factory):
    data = zoo_or_real(name)
    inputs = [row for seed in range(DRAWS) for row in random_rows(data, seed)]
    found, _ = taken_whole(data, opened(tmp_path_factory, "int8"), inputs)
    for ours, theirs in zip(found, in_litert(data, inputs, REFERENCE), strict=True):
        for y, r in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(y, r)


def test_with_quantisation_off_nothing_is_taken_and_the_reason_names_the_option():
    try:
        gpu = load_delegate("gpu", {"enable_quantization": False, "cache_dir": ""})
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")
    interpreter = Interpreter(model_content=real_model("tflm_micro_speech_i8"), experimental_delegates=[gpu])
    assert interpreter.delegation is not None
    assert interpreter.delegation.status == "none"
    assert all("option enable_quantization is off" in f.reason for f in interpreter.delegation.fallbacks)
