import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from runtime.delegates.gpu.backends.opencl.program import (
    BUILD_OPTIONS,
    binary_of,
    build_program,
    program_key,
)
from runtime.delegates.gpu.cache import open_cache
from runtime.delegates.gpu.source import assemble
from runtime.errors import DelegateError
from tests.runtime.delegates.gpu.models import launch


def test_a_compiler_error_names_the_file_and_the_line(backend):
    broken = assemble([launch(TAIL="no_such_name")], backend.capabilities)
    with pytest.raises(DelegateError, match=r"reshape\.cl:\d+:\d+.*undeclared identifier 'no_such_name'"):
        backend.compile(broken)


def test_key_changes_with_source_options_and_driver(backend):
    keys = {
        program_key("a", BUILD_OPTIONS, backend.capabilities),
        program_key("b", BUILD_OPTIONS, backend.capabilities),
        program_key("a", ("-w",), backend.capabilities),
    }
    assert len(keys) == 3


@pytest.mark.parametrize("field", ["processor", "compiler", "driver", "version", "name"])
def test_the_key_tells_processors_and_compilers_apart(backend, field):
    other = replace(backend.capabilities, **{field: "another"})
    assert program_key("a", BUILD_OPTIONS, other) != program_key("a", BUILD_OPTIONS, backend.capabilities)
    assert backend.capabilities.processor


def test_binaries_survive_in_the_cache(backend, tmp_path):
    source = assemble([launch()], backend.capabilities)
    cache = open_cache(tmp_path)
    binary = binary_of(build_program(backend.opened.context, backend.capabilities, source.text, cache))
    cache.write("programs", "k", binary)
    assert open_cache(tmp_path).read("programs", "k") == binary
    assert [path.name for path in (tmp_path / "programs").iterdir()] == ["k"]


_SCRIPT = """
import json, time, numpy as np
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
build = ModelBuilder()
y = build.input(1, 4, 4, 32)
for _ in range(3):
    y = build.op(Op.SOFTMAX, [y], (1, 4, 4, 32), beta=1.0)
partition = whole(build.build(y))
start = time.perf_counter()
compiled = GpuDelegate({}).compile(partition)
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
