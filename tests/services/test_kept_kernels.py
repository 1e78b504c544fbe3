"""Kernels that one run of the suite compiles, the next one does not; different ones are compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

from runtime.delegates.gpu.backends import opencl
from runtime.delegates.gpu.backends.opencl import precision_probe
from runtime.delegates.gpu.backends.opencl.device import capabilities, list_devices
from runtime.delegates.gpu.graph import graph
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.layout.source import Kernel
from runtime.delegates.gpu.settings import precision
from tests.needs import REPOSITORY
from tests.services import kept_kernels
from tests.services.kept_kernels import KeepingCompilers

ARGUMENTS = "__global uchar *a, __global const uchar *c, __global const int *table, int layer"


def kernel(body):
    return Kernel("nothing", f"__kernel void nothing({ARGUMENTS}) {{{body}}}")


def compiled(folder, text):
    """Return the results of a run, and whether it started a child."""
    found = {}
    run = KeepingCompilers(0, "a device", folder / "working", 5.0, kept=open_cache(folder / "kept"))
    run.compile("binaries", "", [text], found.__setitem__)
    started = bool(run._children)
    run.close()
    return found, started


@pytest.mark.slow
def test_a_text_is_compiled_once_and_another_text_or_state_of_the_product_again(tmp_path, monkeypatch):
    first, started = compiled(tmp_path, kernel(""))
    assert started
    assert set(first) == {"nothing"}
    assert compiled(tmp_path, kernel("")) == (first, False)
    assert compiled(tmp_path, kernel("int unused = layer;"))[1]
    monkeypatch.setattr(kept_kernels, "_product", lambda: "with another compiling process")
    assert compiled(tmp_path, kernel(""))[1]


def test_a_setting_of_the_driver_or_the_device_is_part_of_the_key_and_a_folder_is_not(monkeypatch, tmp_path):
    known = kept_kernels._key("code", "", [kernel("")], "a device")
    assert kept_kernels._key("code", "", [kernel("")], "another driver") != known
    assert kept_kernels._key("binaries", "", [kernel("")], "a device") != known
    for variable in ("PYOPENCL_HOME", *open_cache(tmp_path).driver_folders()):
        monkeypatch.setenv(variable, "a folder of this run")
    assert kept_kernels._key("code", "", [kernel("")], "a device") == known
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "loops")
    assert kept_kernels._key("code", "", [kernel("")], "a device") != known


@pytest.fixture
def probed(tmp_path, monkeypatch):
    """Return a function that probes a device whose trials end with a fault, and tells how often they ran."""
    monkeypatch.setenv("FARM_TEST_CACHE", str(tmp_path))
    device, ran = list_devices()[0], []

    def probed(fault):
        def run_all(_index, trials):
            ran.append(fault)
            return dict.fromkeys(trials, fault)

        monkeypatch.setattr(precision_probe, "_run", run_all)
        found = kept_kernels.probe_once(device, capabilities(device), open_cache(None))
        return set(found.faults.values()), len(ran)

    return probed


@pytest.mark.parametrize("fault", ["", "does not compile: no such name"])
def test_findings_are_kept_and_another_setting_or_state_of_the_product_is_probed(probed, monkeypatch, fault):
    assert probed(fault) == probed("another") == ({fault}, 1)
    with monkeypatch.context() as patched:
        patched.setenv("POCL_WORK_GROUP_METHOD", "loops")
        assert probed(fault) == ({fault}, 2)
    monkeypatch.setattr(kept_kernels, "_product", lambda: "another")
    assert probed(fault) == ({fault}, 3)


@pytest.mark.parametrize("fault", ["ends its process by SIGKILL", "no end within 120 s"])
def test_the_fault_of_a_trial_that_did_not_finish_is_not_kept(probed, fault):
    assert probed(fault) == ({fault}, 1)
    assert probed("") == ({""}, 2)


@pytest.mark.parametrize("module", [graph, precision])
def test_what_trials_are_made_of_is_part_of_the_state_of_the_product(monkeypatch, tmp_path, module):
    known = kept_kernels._product()
    (tmp_path / "changed.py").write_text("LANES = 8")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "changed.py"))
    assert kept_kernels._product.__wrapped__() != known


LOADED = """
import sys
from importlib import import_module
for name in ("compile_child", "compilers", "precision_child", "precision_probe"):
    import_module(f"{sys.argv[1]}.{name}")
print(*(name.removeprefix(f"{sys.argv[1]}.") for name in sys.modules if name.startswith(f"{sys.argv[1]}.")))
"""


def test_the_state_of_the_product_has_every_module_of_the_backend_that_is_imported_to_compile():
    command = [sys.executable, "-c", LOADED, opencl.__name__]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {"__init__", *ran.stdout.split()} == set(kept_kernels.COMPILING)
