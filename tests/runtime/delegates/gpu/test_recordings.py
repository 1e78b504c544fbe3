"""The recording of an earlier start is used where everything is as it was, and is made anew elsewhere."""

import json
import os
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.choose.tuning import Tuner
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.keep import cache as cache_module
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.start import preparing
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from runtime.model.writer import write_model
from tests.runtime.delegates.gpu.models import ModelBuilder
from tests.sweeps import rarely


@pytest.fixture
def model(tmp_path):
    """Return a convolution, whose candidates differ, behind a file of its own."""
    build = ModelBuilder()
    weights = build.constant(np.random.default_rng(3).standard_normal((16, 3, 3, 16)).astype(np.float32))
    steps = {"stride_w": 1, "stride_h": 1, "padding": Padding.SAME}
    y = build.op(Op.CONV_2D, [build.input(1, 14, 14, 16), weights], (1, 14, 14, 16), **steps)
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(build.build(y)))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def start(model, folder, **options):
    """Return the output of a start, and the settings that it gives."""
    delegate = GpuDelegate({"cache_dir": str(folder), **options})
    interpreter = Interpreter(model_path=str(model), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    content = np.linspace(-1, 1, 14 * 14 * 16, dtype=np.float32).reshape(1, 14, 14, 16)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], content)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), delegate.describe()


def the_entry(folder):
    (path,) = (folder / "recordings").iterdir()
    return path


@pytest.mark.parametrize("options", [{}, rarely({"persistent": "off"}), rarely({"device_class": "gpu"})])
def test_the_next_start_lowers_and_chooses_nothing(model, folder, monkeypatch, options):
    expected, made = start(model, folder, **options)
    monkeypatch.setattr(preparing, "lowered", lambda *_: pytest.fail("lowered again"))
    found, kept = start(model, folder, **options)
    np.testing.assert_array_equal(found, expected)
    assert (made.pop("recording"), kept.pop("recording")) == ("made", "kept")
    assert kept == made


def rewritten(folder, change):
    """Write the entry anew, behind `change` of what it depends on and of its plan's bytes."""
    cache, path = open_cache(folder), the_entry(folder)
    head, _, body = cache.read("recordings", path.name).partition(b"\n")
    depends_on, body = change(json.loads(head), body)
    cache.write("recordings", path.name, json.dumps(depends_on).encode() + b"\n" + body)


def flipped(folder):
    path = the_entry(folder)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def without(kind):
    return lambda folder: [path.unlink() for path in (folder / kind).iterdir()]


DAMAGES = {
    "a damaged byte": (flipped, "is damaged"),
    "cut": (lambda folder: os.truncate(the_entry(folder), 100), "is damaged"),
    "another driver": (
        lambda folder: rewritten(folder, lambda head, body: (head | {"driver": "older"}, body)),
        "made with another driver",
    ),
    "another version": (
        lambda folder: rewritten(folder, lambda h, b: (h | {"version of the delegate": "0"}, b)),
        "made with another version of the delegate",
    ),
    "no plan": (lambda folder: rewritten(folder, lambda head, body: (head, body[:50])), "cannot be read"),
    "something else": (
        lambda folder: rewritten(folder, lambda head, _: (head, pickle.dumps({}))),
        "holds something else",
    ),
    "a class of somebody else": (
        lambda folder: rewritten(folder, lambda head, _: (head, pickle.dumps(Fraction(1, 2)))),
        "no class of a recording",
    ),
    "no constants": (without("constants"), "packed constants that it names are missing"),
    "no kernels": (without("kernels"), "a kernel that it names is missing"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_used_is_named_and_made_anew(model, folder, caplog, forget, name):
    damage, reason = DAMAGES[name]
    expected, _ = start(model, folder)
    damage(folder)
    forget()
    found, settings = start(model, folder)
    np.testing.assert_array_equal(found, expected)
    assert settings["recording"].startswith("made")
    assert reason in caplog.text
    assert start(model, folder)[1]["recording"] == "kept"


@pytest.mark.parametrize(
    "options",
    [{"tuning": "none"}, *map(rarely, ({"threads": 1}, {"precision": "bf16"}, {"memory": "least"}))],
)
def test_other_options_have_a_recording_of_their_own(model, folder, options):
    start(model, folder)
    assert start(model, folder, **options)[1]["recording"] == "made"
    assert start(model, folder, **options)[1]["recording"] == "kept"
    assert start(model, folder)[1]["recording"] == "kept"


def test_a_start_with_the_choices_of_a_kept_recording_binds_it_and_one_with_others_does_not(model, folder):
    _, first = start(model, folder)
    choices = first["choices"]
    _, given = start(model, folder, choices=choices)
    assert (given["recording"], given["choices"]) == ("kept", choices)
    others = " ".join(f"{one.partition('=')[0]}=nothing" for one in choices.split())
    assert "recording" not in start(model, folder, choices=others)[1], "no kernel is called so"


def test_what_rules_chose_for_a_disturbed_device_is_used_until_the_device_is_quiet(
    model, folder, monkeypatch
):
    with monkeypatch.context() as disturbed:
        for module in ("choose.tuning", "start.preparing"):
            disturbed.setattr(f"runtime.delegates.gpu.{module}.disturbance", lambda _: "a neighbour")
        disturbed.setattr(Tuner, "_measure", lambda *_: pytest.fail("timed"))
        first, second = (start(model, folder)[1] for _ in range(2))
        assert (first["recording"], second["recording"]) == ("made", "kept")
        assert first["disturbed"] == second["disturbed"] == "a neighbour"
    quiet, kept = (start(model, folder)[1] for _ in range(2))
    assert (quiet["recording"], kept["recording"]) == ("made anew: nothing had been timed for it", "kept")
    assert "disturbed" not in quiet
    assert kept["choices"] == quiet["choices"]


def refuse(*_, **__):
    raise OSError(30, "Read-only file system")


def test_a_cache_that_is_only_read_serves_warm_starts(model, folder, monkeypatch):
    expected, _ = start(model, folder)
    monkeypatch.setattr(cache_module, "write_atomically", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    found, settings = start(model, folder)
    np.testing.assert_array_equal(found, expected)
    assert settings["recording"] == "kept"


def test_a_cache_that_cannot_be_written_keeps_nothing_and_runs(model, folder, monkeypatch):
    monkeypatch.setattr(cache_module, "write_atomically", refuse)
    for _ in range(2):
        assert start(model, folder)[1]["recording"] == "made"
    assert "recording" not in start(model, "")[1], "nobody could have kept one"


START = """
import sys
from tests.runtime.delegates.gpu.test_recordings import start
found, settings = start(*sys.argv[1:])
print(float(abs(found).sum()), settings["recording"])
"""


@pytest.mark.slow
def test_two_processes_that_start_at_once_both_compute_and_leave_one_recording(model, folder):
    command = [sys.executable, "-c", START, str(model), str(folder)]
    root = Path(__file__).parents[4]
    both = [subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate()[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    expected, settings = start(model, folder)
    for total, _ in printed:
        assert float(total) == pytest.approx(float(abs(expected).sum()), rel=1e-5)
    # The processes may have found this machine disturbed, which is quiet to this one.
    assert settings["recording"] in ("kept", "made anew: nothing had been timed for it")
    assert len(list((folder / "recordings").iterdir())) == 1
