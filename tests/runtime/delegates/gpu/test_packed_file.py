"""Packed constants in a file: found by the next start, shared, and made anew where anything is wrong."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.common.durable import is_draft
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.layout.packed_file import model_token
from runtime.delegates.gpu.lowering.spec import PackedConstant
from runtime.errors import DelegateError
from runtime.model.fingerprint import fingerprint
from runtime.model.reader import load_model, read_model
from runtime.model.schema import ActivationFunctionType
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from tests.runtime.delegates.gpu.models import ModelBuilder

OPTIONS = {"tuning": "none", "persistent": "off"}


def write(path, scale=1.0):
    """Write a model of one layer with 64 x 48 weights."""
    build = ModelBuilder()
    weights = np.random.default_rng(5).standard_normal((48, 64)).astype(np.float32) * scale
    inputs = [build.input(1, 64), build.constant(weights), build.constant(np.arange(48, dtype=np.float32))]
    y = build.op(
        Op.FULLY_CONNECTED, inputs, (1, 48), fused_activation_function=ActivationFunctionType.NONE,
        keep_num_dims=False, weights_format=0, asymmetric_quantize_inputs=False,
    )  # fmt: skip
    path.write_bytes(write_model(build.build(y)))
    return path


@pytest.fixture
def model(tmp_path):
    return write(tmp_path / "model.tflite")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def packed(monkeypatch):
    """Record the names of the constants that are packed."""
    names = []
    values = PackedConstant.values

    def noted(self):
        names.append(self.name)
        return values(self)

    monkeypatch.setattr(PackedConstant, "values", noted)
    return names


def run(model, folder, size=1, **options):
    """Return the outputs of the model with a delegate that keeps its files in `folder`."""
    delegate = GpuDelegate({**OPTIONS, "serialization_dir": str(folder), **options})
    interpreter = Interpreter(model_path=str(model), experimental_delegates=[delegate])
    (given,) = interpreter.get_input_details()
    for rows in range(1, size + 1):
        interpreter.resize_tensor_input(given["index"], (rows, 64))
        interpreter.allocate_tensors()
        x = np.linspace(-1, 1, rows * 64, dtype=np.float32).reshape(rows, 64)
        interpreter.set_tensor(given["index"], x)
        interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def the_file(folder):
    (path,) = (folder / "constants").iterdir()
    return path


def test_the_next_start_packs_nothing_and_maps_the_file(model, folder, packed):
    expected = run(model, folder)
    assert packed
    del packed[:]
    np.testing.assert_array_equal(run(model, folder), expected)
    assert packed == []
    delegate = GpuDelegate({**OPTIONS, "serialization_dir": str(folder)})
    interpreter = Interpreter(model_path=str(model), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    (line,) = (x for x in Path("/proc/self/maps").read_text().splitlines() if str(the_file(folder)) in x)
    assert line.split()[1].startswith("r--")
    assert the_file(folder).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("token", [{}, {"model_token": "mine"}])
def test_another_model_gets_its_own_weights_even_under_the_same_token(model, folder, packed, token):
    first = run(model, folder, **token)
    write(model, scale=2.0)
    second = run(model, folder, **token)
    np.testing.assert_allclose(second - np.arange(48), 2 * (first - np.arange(48)), rtol=1e-4, atol=1e-4)
    assert len(list((folder / "constants").iterdir())) == 2


@pytest.mark.parametrize("other", [{"model_token": "mine"}, {"precision": "bf16"}])
def test_other_options_get_a_file_of_their_own(model, folder, packed, other):
    run(model, folder)
    del packed[:]
    run(model, folder, **other)
    assert packed
    assert len(list((folder / "constants").iterdir())) == 2


def changed(path):
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"changed")


def replaced_by_a_link(path):
    path.rename(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


def of_another_key(path):
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"0" * 20)


DAMAGES = {
    "changed": changed,
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "emptied": lambda path: os.truncate(path, 0),
    "of another key": of_another_key,
    "writable for others": lambda path: path.chmod(0o666),
    "a link": replaced_by_a_link,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_what_was_written_is_made_anew(model, folder, packed, damage):
    expected = run(model, folder)
    path = the_file(folder)
    DAMAGES[damage](path)
    del packed[:]
    np.testing.assert_array_equal(run(model, folder), expected)
    assert packed
    del packed[:]
    np.testing.assert_array_equal(run(model, folder), expected)
    assert packed == []
    assert not path.is_symlink()


def test_a_file_in_another_state_with_the_same_content_is_used(model, folder, packed, tmp_path):
    expected = run(model, folder)
    path = the_file(folder)
    shutil.copy(path, tmp_path / "copy")
    (tmp_path / "copy").chmod(0o600)
    (tmp_path / "copy").replace(path)
    del packed[:]
    for _ in range(2):
        np.testing.assert_array_equal(run(model, folder), expected)
    assert packed == []


def test_a_use_after_a_while_is_noted_so_that_the_file_stays(model, folder, packed):
    expected = run(model, folder)
    path = the_file(folder)
    os.utime(path, (1e9, 1e9))
    del packed[:]
    for _ in range(2):
        np.testing.assert_array_equal(run(model, folder), expected)
    assert packed == []
    assert path.stat().st_mtime > 1e9 + 1


def test_of_resized_inputs_only_the_first_is_worth_a_file(model, folder):
    run(model, folder, size=2)
    assert len(list((folder / "constants").iterdir())) == 1


_FULL = """
import resource, sys
from pathlib import Path
from tests.runtime.delegates.gpu.test_packed_file import run
run(sys.argv[1], sys.argv[2])
for path in (Path(sys.argv[2]) / "constants").iterdir():
    path.unlink()
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
print(run(sys.argv[1], sys.argv[2]).sum(), list((Path(sys.argv[2]) / "constants").iterdir()))
"""


@pytest.mark.slow
def test_a_full_disk_costs_the_file_alone_and_one_line_says_so(model, folder):
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(model), str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    number, _, left = done.stdout.strip().partition(" ")
    assert float(number) == pytest.approx(float(run(model, folder).sum()), rel=1e-5)
    assert left == "[]"
    assert done.stderr.count("packed constants are not kept in") == 1


def test_the_token_is_a_hash_of_the_bytes_and_known_as_long_as_the_file_stays_as_it_is(
    model, folder, monkeypatch
):
    cache = open_cache(folder)
    expected = hashlib.sha256(model.read_bytes()).hexdigest()
    assert fingerprint(read_model(model.read_bytes())) == expected
    assert model_token(load_model(model), cache) == expected
    monkeypatch.setattr("runtime.delegates.gpu.layout.packed_file.fingerprint", lambda _: "hashed again")
    assert model_token(load_model(model), cache) == expected
    write(model, scale=3.0)
    # Clocks of file systems advance in steps of milliseconds.
    os.utime(model, (1e9, 1e9))
    assert model_token(load_model(model), cache) == "hashed again"


def test_the_folder_has_one_name_and_a_token_says_something():
    with pytest.raises(DelegateError, match="'cache_dir' and 'serialization_dir' name one folder"):
        GpuDelegate({"cache_dir": "/a", "serialization_dir": "/a"})
    for name in ("serialization_dir", "model_token"):
        with pytest.raises(DelegateError, match=f"option {name!r} must not be empty"):
            GpuDelegate({name: ""})


_START = """
import sys
from pathlib import Path
from tests.runtime.delegates.gpu.test_packed_file import run
print(run(sys.argv[1], Path(sys.argv[2])).sum())
"""


@pytest.mark.exhaustive
def test_eight_processes_start_at_once_with_nothing_kept(model, folder):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _START, str(model), str(folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    outputs = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0] * 8
    assert len(set(outputs)) == 1
    assert len(list((folder / "constants").iterdir())) == 1
    assert [path for path in folder.rglob("*") if is_draft(path)] == []


_LAYERS, _WIDTH = 4, 2048
"""Layers whose weights take 16 MiB each."""

_RESIZED = """
import sys
from pathlib import Path
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.api.interpreter import Interpreter

def mebibytes(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith(what))

delegate = GpuDelegate({"tuning": "none", "persistent": "off", "cache_dir": sys.argv[2]})
interpreter = Interpreter(model_path=sys.argv[1], experimental_delegates=[delegate])
interpreter.allocate_tensors()
interpreter.resize_tensor_input(0, [2, int(sys.argv[3])])
before = mebibytes("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
interpreter.allocate_tensors()
print(mebibytes("VmHWM") - before)
"""


@pytest.mark.slow
def test_weights_that_are_packed_in_memory_are_there_once(tmp_path, folder):
    build, random = ModelBuilder(), np.random.default_rng(1)
    y = build.input(1, _WIDTH)
    for _ in range(_LAYERS):
        weights = build.constant(random.standard_normal((_WIDTH, _WIDTH), np.float32))
        y = build.op(
            Op.FULLY_CONNECTED, [y, weights, -1], (1, _WIDTH), keep_num_dims=False, weights_format=0,
            asymmetric_quantize_inputs=False, fused_activation_function=ActivationFunctionType.NONE,
        )  # fmt: skip
    path = tmp_path / "wide.tflite"
    path.write_bytes(write_model(build.build(y)))
    command = [sys.executable, "-c", _RESIZED, str(path), str(folder), str(_WIDTH)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    packed = _LAYERS * 4 * _WIDTH * _WIDTH >> 20
    # One layer more as its file has it, as a matrix, and as it is packed.
    assert int(ran.stdout) <= packed + 3 * packed // _LAYERS + 8
