"""Kernels that one run of the suite compiles, the next one does not; different ones are compiled."""

from __future__ import annotations

from runtime.delegates.gpu.keep.cache import open_cache
from runtime.delegates.gpu.layout.source import Kernel
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
    for variable in open_cache(tmp_path).driver_folders():
        monkeypatch.setenv(variable, "a folder of this run")
    assert kept_kernels._key("code", "", [kernel("")], "a device") == known
    monkeypatch.setenv("POCL_WORK_GROUP_METHOD", "loops")
    assert kept_kernels._key("code", "", [kernel("")], "a device") != known
