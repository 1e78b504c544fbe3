import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from runtime.delegates.gpu.backends.opencl import program
from runtime.delegates.gpu.backends.opencl.library import kernel_key
from runtime.delegates.gpu.layout.source import assemble
from runtime.errors import DelegateError
from tests.runtime.delegates.gpu.models import launch


def test_a_compiler_error_names_the_file_and_the_line(backend):
    broken = assemble([launch(TAIL="no_such_name")], backend.capabilities)
    with pytest.raises(DelegateError, match=r"reshape\.cl:\d+:\d+.*undeclared identifier 'no_such_name'"):
        backend.compile(broken)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("__kernel void probe() { missing(); }", r"error: .*'missing'"),
        ('#line 1 "probe.cl"\n#define F gone()\n__kernel void probe() { F; }', r"error: probe\.cl:2.*'gone'"),
        ("#error a\n#error b\n__kernel void probe() {}", r"error: .*: a"),
    ],
)
def test_a_compiler_that_fails_at_the_smallest_kernel_is_quoted_in_one_line(
    backend, monkeypatch, text, fault
):
    monkeypatch.setattr(program, "kernel_source", lambda name: text if name == "probe.cl" else "")
    assert re.fullmatch(fault, program.probe_compiler(backend.opened.device).fault)


def test_a_key_changes_with_the_text_and_with_what_is_made_of_it(backend):
    device = backend.capabilities
    assert len({kernel_key(form, text, device) for form in ("code", "binaries") for text in "ab"}) == 4


@pytest.mark.parametrize("field", ["processor", "compiler", "driver", "version", "name"])
def test_the_key_tells_processors_and_compilers_apart(backend, field):
    other = replace(backend.capabilities, **{field: "another"})
    assert kernel_key("code", "a", other) != kernel_key("code", "a", backend.capabilities)
    assert backend.capabilities.processor


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
compiled = GpuDelegate({"tuning": "none", "persistent": "off"}).compile(partition)
out = np.empty((1, 4, 4, 32), np.float32)
compiled.invoke([np.ones_like(out)], [out])
print(json.dumps({"s": time.perf_counter() - start, "sum": float(out.sum())}))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    """The library, the tuning and PoCL's own cache are complete after the first process."""
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
    assert len([path for path in seen[0] if path.parent.name == "kernels"]) == 1
