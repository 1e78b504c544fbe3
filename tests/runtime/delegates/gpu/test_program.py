import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from runtime.delegates.gpu.lowering.spec import Instance, Launch, Scratch, defines
from runtime.delegates.gpu.program import (
    BUILD_OPTIONS,
    ProgramCache,
    assemble,
    binary_of,
    build_program,
    function_of,
    program_key,
    write_atomically,
)
from runtime.errors import DelegateError


def launch(**changed):
    values = {"PIXELS": 4, "IN_CHANNELS": 16, "OUT_CHANNELS": 16, "IN_STRIDE": 16, "IN_CHANNEL_STRIDE": 1}
    values |= {"OUT_STRIDE": 16, "GROUP": 4, "GROUP_STRIDE": 0, "TAIL": 0} | changed
    instance = Instance("reshape.cl", "f32_reshape_copy", defines(**values))
    return Launch(instance, (Scratch("a", 64), Scratch("b", 64)), 2, "copy", (0,))


def test_equal_functions_are_compiled_once_and_others_get_names_of_their_own(opened):
    source = assemble([launch(), launch(), launch(TAIL=1)], opened.capabilities)
    assert len(source.names) == 2
    assert len(set(source.names.values())) == 2
    assert all(name.startswith("f32_reshape_copy") for name in source.names.values())
    assert source.text.count('#line 1 "reshape.cl"') == 2
    assert sorted(source.numbers.values()) == [0, 1]


def test_a_compiler_error_names_the_file_and_the_line(opened):
    broken = assemble([launch(TAIL="no_such_name")], opened.capabilities)
    with pytest.raises(DelegateError, match=r"reshape\.cl:\d+:\d+.*undeclared identifier 'no_such_name'"):
        build_program(opened.context, opened.capabilities, broken.text, ProgramCache(None))


def test_key_changes_with_source_options_and_driver(opened):
    keys = {
        program_key("a", BUILD_OPTIONS, opened.capabilities),
        program_key("b", BUILD_OPTIONS, opened.capabilities),
        program_key("a", ("-w",), opened.capabilities),
    }
    assert len(keys) == 3


@pytest.mark.parametrize("field", ["processor", "compiler", "driver", "version", "name"])
def test_the_key_tells_processors_and_compilers_apart(opened, field):
    other = replace(opened.capabilities, **{field: "another"})
    assert program_key("a", BUILD_OPTIONS, other) != program_key("a", BUILD_OPTIONS, opened.capabilities)
    assert opened.capabilities.processor


def test_binaries_survive_in_the_cache(opened, tmp_path):
    source = assemble([launch()], opened.capabilities)
    cache = ProgramCache(tmp_path)
    assert cache.read("k") is None
    binary = binary_of(build_program(opened.context, opened.capabilities, source.text, cache))
    cache.write("k", binary)
    assert ProgramCache(tmp_path).read("k") == binary
    assert [path.name for path in (tmp_path / "programs").iterdir()] == ["k.bin"]


def test_a_failed_write_leaves_nothing(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(target, b"content")
    assert list(tmp_path.iterdir()) == [target]


_SCRIPT = """
import json, time, numpy as np
from runtime.delegates.gpu.delegate import OpenClDelegate
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
build = ModelBuilder()
y = build.input(1, 4, 4, 32)
for _ in range(3):
    y = build.op(Op.SOFTMAX, [y], (1, 4, 4, 32), beta=1.0)
partition = whole(build.build(y))
start = time.perf_counter()
compiled = OpenClDelegate({}).compile(partition)
out = np.empty((1, 4, 4, 32), np.float32)
compiled.invoke([np.ones_like(out)], [out])
print(json.dumps({"s": time.perf_counter() - start, "sum": float(out.sum())}))
"""


def test_a_second_process_compiles_nothing(tmp_path):
    """PoCL's own cache holds its kernels, ours the tuning: both are complete after the first process."""
    environment = {
        **os.environ,
        "POCL_CACHE_DIR": str(tmp_path / "pocl"),
        "FARM_CACHE_DIR": str(tmp_path / "farm"),
    }
    (tmp_path / "pocl").mkdir()
    seen = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["sum"] == pytest.approx(16.0)
        files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
        seen.append({path for path in files if not path.name.startswith("tempfile")})
    assert seen[0] == seen[1]
    assert seen[0]


def test_a_function_knows_which_pointers_are_constant():
    assert function_of(launch()).spaces == "AA"
