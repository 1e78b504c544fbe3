"""A process reveals whether it used the device that it is measured on."""

from __future__ import annotations

import pytest

from agent.machine.device_use import DRIVER, OWN_CPU, DeviceUse

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libc.so.6
7f02-7f03 r-xp 00000000 08:01 2 {library}
7f04-7f05 rw-p 00000000 00:00 0 [heap]
"""


def seen(folder, library, device_file=None):
    process = folder / "proc/7"
    (process / "fd").mkdir(parents=True)
    (process / "maps").write_text(MAPS.format(library=library))
    if device_file is not None:
        (process / "fd/3").symlink_to(device_file)
    return DeviceUse.of(7, 8, 0.1, 1.0, folder)


@pytest.mark.parametrize(
    "library",
    [
        "/opt/pocl/libpocl.so.2.14",
        "/usr/lib/libcuda.so.550",
        "/x/libOpenCL-1a2b.so.1",
        "/usr/lib/libvulkan.so.1",
        # As the kernel lists a library whose file was replaced by an upgrade.
        "/usr/lib/libpocl.so.2.14 (deleted)",
    ],
)
def test_a_driver_in_the_process_may_have_reached_the_device(tmp_path, library):
    assert seen(tmp_path, library).judged(is_gpu=True).seen == (DRIVER, OWN_CPU)


def test_so_may_an_open_device_file(tmp_path):
    assert seen(tmp_path, "/lib/libstatic.so", "/dev/dri/renderD128").reaches


def test_without_a_driver_a_result_of_a_device_is_invalid(tmp_path):
    evidence = seen(tmp_path, "/lib/libtensorflow.so", "/dev/null").judged(is_gpu=False)
    (found,) = evidence.found
    assert found.invalidates
    assert found.text.startswith("no driver is loaded")


def test_what_cannot_be_read_proves_nothing(tmp_path):
    evidence = DeviceUse.of(7, 8, 0.1, 1.0, tmp_path).judged(is_gpu=True)
    assert (evidence.found, evidence.seen) == ((), ())
    assert evidence.unseen == (f"{DRIVER}: the process's libraries cannot be read",)


@pytest.mark.parametrize(
    ("busy", "cpus", "is_gpu", "suspect", "lacking"),
    [
        (0.3, 8, True, False, False),
        (7.6, 8, True, True, False),
        (1.9, 2, True, True, False),
        # A driver's thread that spins until the GPU is done.
        (1.0, 8, True, False, True),
        (1.0, 1, True, False, True),
        (7.6, 8, False, False, False),
    ],
)
def test_cpus_that_are_busy_beside_a_gpu_are_suspect(busy, cpus, is_gpu, suspect, lacking):
    evidence = DeviceUse(reaches=True, busy_cpus=busy, cpus=cpus).judged(is_gpu=is_gpu)
    assert bool(evidence.found) == suspect
    assert not any(found.invalidates for found in evidence.found)
    assert any(text.startswith(OWN_CPU) for text in evidence.unseen) == lacking
