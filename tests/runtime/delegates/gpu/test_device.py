import os
import subprocess
import sys

import pytest

from runtime.delegates.gpu.backends.opencl.device import list_devices
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.errors import DeviceError


def python(script, *arguments, **environment):
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_device_is_found_by_index_and_by_part_of_its_name():
    name = list_devices()[0].name.strip()
    for wanted in (0, "0", name, name[: len(name) // 2].upper()):
        assert GpuDelegate({"device": wanted}).describe()["device"] == name


def test_an_absent_device_is_an_error_that_lists_what_there_is():
    name = list_devices()[0].name.strip()
    with pytest.raises(DeviceError, match="no OpenCL device is called 'Voodoo 3'; there are 0: ") as caught:
        GpuDelegate({"device": "Voodoo 3"})
    assert name in str(caught.value)
    with pytest.raises(DeviceError, match="there is no OpenCL device 99; there are 0: "):
        GpuDelegate({"device": 99})


def test_describe_names_device_driver_and_settings():
    described = GpuDelegate({"tuning": "none"}).describe()
    assert {"device", "platform", "driver", "opencl_version", "precision", "tuning"} <= set(described)
    assert described["tuning"] == "none"
    assert all(isinstance(value, str) for value in described.values())


def test_without_any_opencl_the_error_says_what_to_install():
    script = (
        "from runtime.delegates.gpu.delegate import GpuDelegate\n"
        "from runtime.errors import DeviceError\n"
        "try:\n    GpuDelegate({})\nexcept DeviceError as error:\n    print(error)\n"
    )
    done = python(script, OCL_ICD_VENDORS="/nonexistent")
    assert "no OpenCL platform was found: install an OpenCL driver" in done.stdout, done.stderr
    assert "pocl-opencl-icd" in done.stdout


def test_the_threads_of_the_pool_and_the_affinity_bound_the_compute_units():
    script = (
        "import os\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from runtime.delegates.gpu.delegate import GpuDelegate\n"
        "print(GpuDelegate({}).describe()['compute_units'])\n"
    )
    done = python(script, POCL_MAX_PTHREAD_COUNT="1")
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.slow
def test_the_code_of_the_drivers_compiler_takes_no_memory_until_it_is_run(tmp_path):
    """PoCL's compiler is LLVM, which is 60 MiB once it is loaded; after the opening nothing runs it."""
    script = """
import sys
from pathlib import Path
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.program import probe_compiler

def code_kib():
    found, library = 0, ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if not fields[0].endswith(":"):
            library = fields[-1] if "x" in fields[1] else ""
        elif fields[0] == "Rss:" and ("libLLVM" in library or "libclang" in library):
            found += int(fields[1])
    return found

backend = OpenClBackend.open(0, Path(sys.argv[1]))
before = code_kib()
assert probe_compiler(backend.opened.device).fault is None
print(before, code_kib())
"""
    ran = python(script, tmp_path)
    assert ran.returncode == 0, ran.stderr
    opened, compiled = map(int, ran.stdout.split())
    if not compiled:
        pytest.skip("this driver's compiler is no LLVM")
    assert 2 * opened < compiled
