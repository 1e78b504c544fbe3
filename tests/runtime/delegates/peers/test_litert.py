"""The two interfaces of LiteRT that `litert` measures; LiteRT runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.needs import REPOSITORY
from tests.runtime.delegates.peers.small_models import (
    conv_model,
    image,
    variable_model,
    wide_integer_model,
)

SCRIPT = """
import json, sys
import numpy as np
from runtime.delegates.registry import load_delegate
from tests.runtime.delegates.peers.small_models import image

def run(path, options, shape):
    try:
        delegate = load_delegate("litert", {"threads": 1, **options})
        model = delegate.load(path)
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error)}
    (given,), (made,) = model.get_input_details(), model.get_output_details()
    if tuple(given["shape"]) != tuple(shape):
        model.resize_tensor_input(given["index"], shape)
        model.allocate_tensors()
    for value in (image(*shape[1:]), 2 * image(*shape[1:])):
        model.set_tensor(given["index"], value)
        model.invoke()
    return {"output": model.get_tensor(made["index"]).tolist(), "describe": dict(delegate.describe())}

print(json.dumps([run(*one) for one in json.loads(sys.argv[1])]))
"""

NEXT = {"api": "compiled_model"}
OPTIONS = {
    "interpreter": {},
    "next": NEXT,
    "fp16": {**NEXT, "force_fp16": True},
    "builtin": {**NEXT, "resolver": "builtin"},
    "reference": {**NEXT, "resolver": "reference"},
    "switches": {**NEXT, "slow_consistent_arithmetic": True, "transient_indirection_buffer": True},
    "latest": {"latest_operators": True},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> dict[str, dict]:
    """Return what each run gave, by name; one process runs them all."""
    folder = tmp_path_factory.mktemp("litert")
    models = {"conv": conv_model(), "variable": variable_model(), "wide": wide_integer_model()}
    for name, content in models.items():
        (folder / name).write_bytes(content)
    asked = {name: ("conv", options, image().shape) for name, options in OPTIONS.items()}
    asked |= {f"{name} resized": ("conv", OPTIONS[name], (1, 5, 6, 16)) for name in ("interpreter", "next")}
    asked |= {name: (name, NEXT, (1, 4)) for name in ("variable", "wide")}
    asked["release"] = ("conv", {"version": "0.0.1"}, image().shape)
    given = json.dumps([(str(folder / model), *rest) for model, *rest in asked.values()])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, given], capture_output=True, text=True, cwd=REPOSITORY, check=True
    )
    return dict(zip(asked, json.loads(done.stdout), strict=True))


def off(ran: dict[str, dict], name: str, base: str = "interpreter") -> float:
    found, expected = (np.array(ran[one]["output"]) for one in (name, base))
    assert found.shape == expected.shape
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_both_interfaces_compute_the_same_with_the_last_inputs_that_were_set(ran):
    assert off(ran, "next") == 0
    assert off(ran, "next resized", "interpreter resized") == 0
    assert {ran[name]["describe"]["api"] for name in ("interpreter", "next")} == {
        "interpreter",
        "compiled_model",
    }
    assert ran["next"]["describe"]["xnnpack"] == "every operator"


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("fp16", 1e-5, 1e-2),
        ("builtin", 0, 1e-6),
        ("reference", 0, 1e-6),
        ("switches", 0, 1e-6),
        ("latest", 0, 0),
    ],
)
def test_options_of_xnnpack_and_resolvers_reach_litert(ran, name, least, most):
    assert least <= off(ran, name) <= most
    told, asked = ran[name]["describe"], {"resolver": "xnnpack", **OPTIONS[name]}
    assert told.items() >= {key: "yes" if value is True else value for key, value in asked.items()}.items()


def test_another_release_than_is_imported_is_an_error(ran):
    assert ran["release"]["error"] == "DelegateError"
    assert ran["release"]["text"].startswith("litert: LiteRT 0.0.1 was asked for, and this process imports ")


def test_what_the_compiled_model_lacks_is_unsupported_with_its_words(ran):
    assert ran["variable"] == {
        "error": "UnsupportedOperatorError",
        "text": "LiteRT: Variable tensors not yet supported.",
    }
    assert ran["wide"]["error"] == "UnsupportedOperatorError"
    assert "'x' is int64, which LiteRT's CompiledModel does not exchange" in ran["wide"]["text"]
    assert ran["wide"]["text"].endswith("api: interpreter)")
