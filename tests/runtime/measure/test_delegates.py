"""Delegates by name, and the options of the `litert` peer; LiteRT itself runs in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from runtime.common.installation import install_command
from runtime.delegates import registry
from runtime.delegates.registry import delegate_descriptor, delegate_names, load_delegate
from runtime.errors import DelegateError
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.needs import REPOSITORY


def in_a_process(script: str, *arguments: str) -> object:
    """Return a script's output as JSON; it may import LiteRT, which this process must not."""
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_our_delegates_are_registered():
    assert {"cpu", "gpu", "litert"} <= set(delegate_names())


def test_naming_delegates_imports_none():
    script = (
        "import json, sys, runtime.delegates.registry as r; r.delegate_names()\n"
        "print(json.dumps([m for m in sys.modules if 'opencl' in m or 'litert' in m]))"
    )
    assert in_a_process(script) == []


def test_describing_our_delegates_imports_neither_numpy_nor_what_they_run_on():
    script = (
        "import json, sys\nfrom importlib.metadata import entry_points\n"
        "for point in entry_points(group='delegate_farm.delegates'): point.load()\n"
        "print(json.dumps([m for m in sys.modules if m in ('numpy', 'pyopencl', 'ai_edge_litert')]))"
    )
    assert in_a_process(script) == []


def test_cpu_is_described_but_is_nothing_to_load():
    assert delegate_descriptor("cpu").implementation is None
    with pytest.raises(DelegateError, match="'cpu' is the interpreter itself"):
        load_delegate("cpu")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("json:loads",), "delegate 'x' (json:loads) is a function; the entry point must name a Delegate"),
        (("nowhere.at_all:X",), "delegate 'x' (nowhere.at_all:X) cannot be imported: No module named"),
        (("runtime.delegates.cpu:DESCRIPTOR",), "calls itself 'cpu'; use one name"),
        (("b:B", "a:A"), "delegate 'x' is registered twice: a:A, b:B; uninstall all but one"),
    ],
)
def test_an_entry_point_that_names_no_usable_descriptor_says_what_is_wrong(values, said, monkeypatch):
    points = [EntryPoint("x", value, registry.ENTRY_POINT_GROUP) for value in values]
    monkeypatch.setattr(registry, "entry_points", lambda **_: points)
    monkeypatch.setattr(registry, "_entry_point", registry._entry_point.__wrapped__)
    with pytest.raises(DelegateError) as caught:
        delegate_descriptor("x")
    assert said in str(caught.value)


def test_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(DelegateError, match=r"no delegate named 'gpuu'; known: .*litert.*did you mean 'gpu'"):
        load_delegate("gpuu")


@pytest.mark.parametrize(
    ("given", "threads", "resolver"),
    [
        ({"threads": 2}, 2, "xnnpack"),
        ({"threads": 3, "resolver": "builtin"}, 3, "builtin"),
        ({"resolver": "reference"}, None, "reference"),
    ],
)
def test_litert_options_are_parsed(given, threads, resolver):
    parsed = delegate_descriptor("litert").parse(given)
    assert (parsed["threads"], parsed["resolver"], parsed["api"]) == (threads, resolver, "interpreter")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"thread": 2}, "unknown option 'thread'"),
        ({"threads": 0}, "option 'threads': expected a whole number at least 1 and at most 1024, got 0"),
        ({"threads": True}, "got True"),
        ({"threads": 1.5}, "got 1.5"),
        ({"resolver": "fast"}, "expected xnnpack or builtin or reference, got 'fast'"),
        ({"api": "next"}, "expected interpreter or compiled_model, got 'next'"),
    ],
)
def test_wrong_litert_options_are_named(given, said):
    with pytest.raises(DelegateError, match=said.replace(".", r"\.")):
        delegate_descriptor("litert").parse(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"force_fp16": True}, "no option force_fp16 in Python; use `api: compiled_model`"),
        ({"api": "interpreter", "slow_consistent_arithmetic": True}, "use `api: compiled_model`"),
        ({"resolver": "builtin", "latest_operators": True}, "XNNPACK, which resolver 'builtin' does not use"),
        (
            {"api": "compiled_model", "resolver": "reference", "force_fp16": True},
            "force_fp16 is an option of XNNPACK, which resolver 'reference' does not use",
        ),
    ],
)
def test_options_that_litert_does_not_have_together_say_what_to_use_instead(given, said):
    assert said in delegate_descriptor("litert").settled(given)


@pytest.mark.parametrize(
    "given",
    [
        {"latest_operators": True},
        {"resolver": "builtin", "force_fp16": False, "latest_operators": False},
        {"api": "compiled_model", "force_fp16": True, "transient_indirection_buffer": True},
    ],
)
def test_options_that_litert_has_together_stay_as_they_are(given):
    assert delegate_descriptor("litert").settled(given) == given


LOAD = """
import json, sys
from runtime.delegates.registry import load_delegate
try:
    load_delegate("litert", {"threads": 1, "resolver": sys.argv[2]}).load(sys.argv[1])
    print(json.dumps("loaded"))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""


@pytest.mark.parametrize("resolver", ["xnnpack", "builtin", "reference"])
def test_litert_loads_with_every_resolver(small_model, resolver):
    assert in_a_process(LOAD, str(small_model), resolver) == "loaded"


def test_litert_maps_a_damaged_file(tmp_path):
    (tmp_path / "bad.tflite").write_bytes(b"\0" * 100)
    name, text = in_a_process(LOAD, str(tmp_path / "bad.tflite"), "xnnpack")
    assert name == "ModelFormatError"
    assert text.startswith("LiteRT: ")


def test_litert_that_finds_no_memory_says_so(tmp_path):
    """LiteRT's own error has no text then."""
    shape = (1, 8192, 8192, 8)
    tensors = (Tensor(0, "x", TensorType.FLOAT32, shape), Tensor(1, "y", TensorType.FLOAT32, shape))
    relu = Operator(0, BuiltinOperator.RELU, 1, (0,), (1,))
    wide = Model(3, "", (Subgraph(0, "main", tensors, (0,), (1,), (relu,)),))
    (tmp_path / "wide.tflite").write_bytes(write_model(wide))
    limited = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (1 << 29, 1 << 29))\n" + LOAD
    name, text = in_a_process(limited, str(tmp_path / "wide.tflite"), "builtin")
    assert name == "OutOfMemoryError"
    assert text.startswith("LiteRT: out of memory for the model's tensors")


def test_litert_without_its_package_says_how_to_get_it(small_model):
    script = "import sys; sys.modules['ai_edge_litert'] = None\n" + LOAD
    name, text = in_a_process(script, str(small_model), "xnnpack")
    assert name == "DelegateError"
    assert install_command("peers") in text
