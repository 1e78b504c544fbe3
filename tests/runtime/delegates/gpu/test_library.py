"""The library of kernels: what is missing compiles in child processes, which may crash, hang or vanish."""

import os
import re
import signal
import time
from threading import Thread

import numpy as np
import pytest

from runtime.common.system import usable_cpus, use_cpus
from runtime.delegates.gpu.backends.opencl import compilers as compiling
from runtime.delegates.gpu.backends.opencl import library
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.by_address import bind_threads, counters
from runtime.delegates.gpu.backends.opencl.compilers import Compilers, environment_of_child
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout.source import Kernel, Source, assemble, kernel_source, trial_kernels
from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, launch, whole

TRIES = 100
"""The most times that threads are to be bound, until all of them get to run."""


@pytest.fixture
def compiled(monkeypatch):
    """Record the names of the kernels that children were asked for, in order."""
    asked = []
    original = Compilers.compile

    def noted(self, form, common, kernels, take):
        asked.extend(kernel.name for kernel in kernels)
        original(self, form, common, kernels, take)

    monkeypatch.setattr(Compilers, "compile", noted)
    return asked


def run(folder):
    """Two layers on a device with this cache."""
    build = ModelBuilder()
    shape = (1, 3, 5, 17)
    y = build.op(Op.TANH, [build.input(*shape)], shape)
    partition = whole(build.build(build.op(Op.SOFTMAX, [y], shape, beta=1.0)))
    options = {"cache_dir": str(folder), "tuning": "none", "persistent": "off"}
    compiled = GpuDelegate(options).compile(partition)
    output = np.full(shape, np.nan, np.float32)
    compiled.invoke([np.linspace(-2, 2, output.size, dtype=np.float32).reshape(shape)], [output])
    compiled.close()
    return output


def kernel(name, text):
    return Source([Kernel(name, text)], {}, {})


def enqueued(name):
    """Build a kernel that does nothing, with the arguments of one that is enqueued."""
    arguments = "__global uchar *a, __global const uchar *c, __global const int *table, int layer"
    return kernel(name, f"__kernel void {name}({arguments}) {{}}").kernels


def test_only_what_the_library_lacks_is_compiled(tmp_path, forget, compiled):
    backend = OpenClBackend.open(0, tmp_path)
    backend.compile(assemble([launch()], backend.capabilities))
    del compiled[:]
    both = assemble([launch(), launch(TAIL=1)], backend.capabilities)
    backend.compile(both)
    assert compiled == [both.kernels[1].name]


def test_a_new_process_finds_everything_on_disk_and_replaces_what_does_not_load(tmp_path, forget, compiled):
    expected = run(tmp_path)
    assert compiled
    del compiled[:]
    forget()
    np.testing.assert_array_equal(run(tmp_path), expected)
    assert compiled == []
    backend = OpenClBackend.open(0, tmp_path)
    names = [path.name for path in (tmp_path / "kernels").iterdir()]
    # As what the cache keeps has a hash, only another loader or driver can refuse it.
    for number, name in enumerate(names):
        backend.cache.write("kernels", name, b"\x7fELF\x02\x01\x01" + bytes(80) if number else b"no code")
    forget()
    np.testing.assert_array_equal(run(tmp_path), expected)
    assert len(compiled) == len(names)


def test_a_compiler_that_crashes_is_one_error_and_the_next_compile_works(backend):
    crashing = kernel("crashing", "#pragma clang __debug crash\n")
    with pytest.raises(DelegateError, match=r"OpenCL compiler of .* while it compiled crashing"):
        backend.compile(crashing)
    backend.compile(assemble([launch(TAIL=2)], backend.capabilities))


def test_a_compiler_that_hangs_is_ended_and_the_next_compile_works(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "LONGEST_S", 0.5)
    os.mkfifo(tmp_path / "nobody_writes")
    hanging = kernel("hanging", f'#include "{tmp_path / "nobody_writes"}"\n')
    with pytest.raises(DelegateError, match=r"did not answer for .* while it compiled hanging; it was ended"):
        backend.compile(hanging)
    monkeypatch.undo()
    backend.compile(assemble([launch(TAIL=3)], backend.capabilities))


def threads_on_one_cpu() -> dict[int, int]:
    """Return the threads of this process that may use one CPU alone, and that CPU."""
    allowed = {
        int(thread.name): os.sched_getaffinity(int(thread.name)) for thread in os.scandir("/proc/self/task")
    }
    return {thread: min(cpus) for thread, cpus in allowed.items() if len(cpus) == 1}


def test_threads_of_the_driver_stay_on_a_cpu_each(backend, monkeypatch):
    cpus = sorted(usable_cpus())
    if not (backend.library.calls_addresses and 1 < len(cpus) == backend.opened.device.max_compute_units):
        pytest.skip("the driver has not a thread for each of several CPUs, or calls nothing by address")
    # Bound before, the driver's or another library's: Mesa binds threads of its own to the CPUs of one cache.
    for thread in threads_on_one_cpu():
        os.sched_setaffinity(thread, cpus)
    # Of more groups than threads one waits in vain for the last, and no thread is bound.
    assert not bind_threads(backend.opened.context, backend.library._layers, cpus[:1] * (len(cpus) + 1))
    assert not threads_on_one_cpu()
    # In one of several tries: while CPUs are busy not every thread gets to run, and none is bound.
    for _ in range(TRIES):
        monkeypatch.setattr(library, "_bound", {})
        if OpenClBackend.open(0, None).capabilities.driver_threads == "one on each CPU":
            break
    bound = threads_on_one_cpu()
    assert sorted(bound.values()) == cpus
    # Bound anew they are the same threads, on a CPU each.
    assert any(bind_threads(backend.opened.context, backend.library._layers, cpus) for _ in range(TRIES))
    assert threads_on_one_cpu().keys() == bound.keys()


def test_threads_that_are_more_than_the_cpus_are_not_bound(backend):
    allowed, units = usable_cpus(), backend.opened.device.max_compute_units
    use_cpus([min(allowed)])
    try:
        said = backend.library.bind_threads(backend.opened.device)
    finally:
        use_cpus(allowed)
    bound = "one on each CPU" if units == 1 else f"not bound to CPUs: {units} for 1"
    assert said == (bound if backend.library.calls_addresses else "")


def test_counters_are_as_many_as_the_shares_of_the_kernel():
    text = kernel_source("layers.cl")
    (taken,), (pieces,) = (re.findall(rf"#define {name} (\d+)\n", text) for name in ("TAKEN", "PIECES"))
    assert len(counters(3)) == int(taken) + 3 * int(pieces)


@pytest.mark.slow
def test_a_child_that_has_ended_for_want_of_work_is_replaced(backend):
    children = Compilers(0, backend.capabilities.name, None, idle_s=0.05)
    done = []
    for name in ("first", "second"):
        children.compile("binaries", "", enqueued(name), lambda name, _: done.append(name))
        (child,) = children._children
        # Ended, yet not noticed: the next request goes to nobody.
        child.process.poll = lambda: None
        os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
    children.close()
    assert done == ["first", "second"]


@pytest.mark.slow
def test_a_child_that_has_ended_before_its_first_request_is_replaced(backend):
    """A busy machine, or a suspended process, lets it end between the two."""
    children = Compilers(0, backend.capabilities.name, None, idle_s=0.05)
    (child,) = children._ready(1)
    child.process.poll = lambda: None
    os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOWAIT)
    done = []
    children.compile("binaries", "", enqueued("first"), lambda name, _: done.append(name))
    children.close()
    assert done == ["first"]


@pytest.mark.slow
def test_a_child_that_somebody_kills_costs_this_compile_alone(backend):
    children = Compilers(0, backend.capabilities.name, None, idle_s=60.0)
    children.compile("binaries", "", enqueued("first"), lambda *_: None)
    (child,) = children._children
    os.kill(child.process.pid, signal.SIGSTOP)
    ends = time.monotonic() + 60

    def kill_when_asked():
        while child.requests < 2 and time.monotonic() < ends:
            time.sleep(0.01)
        os.kill(child.process.pid, signal.SIGKILL)

    killer = Thread(target=kill_when_asked)
    killer.start()
    with pytest.raises(compiling.CompilerLostError, match="ended by signal 9 while it compiled second"):
        children.compile("binaries", "", enqueued("second"), lambda *_: None)
    killer.join()
    done = []
    children.compile("binaries", "", enqueued("third"), lambda name, _: done.append(name))
    children.close()
    assert done == ["third"]


@pytest.mark.slow
def test_a_fork_of_this_process_has_children_of_its_own(backend):
    children = Compilers(0, backend.capabilities.name, None, idle_s=60.0)
    children.compile("binaries", "", enqueued("first"), lambda *_: None)
    (known,) = children._children
    pid = os.fork()
    if not pid:
        done = []
        try:
            children.compile("binaries", "", enqueued("second"), lambda name, _: done.append(name))
            children.close()
        finally:
            os._exit(0 if done == ["second"] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    done = []
    children.compile("binaries", "", enqueued("third"), lambda name, _: done.append(name))
    still = list(children._children)
    children.close()
    assert (done, still) == (["third"], [known])


def test_a_child_gets_the_settings_of_drivers_and_no_secrets(tmp_path):
    given = {
        "PATH": "/bin",
        "POCL_DEBUG": "1",
        "OCL_ICD_VENDORS": "/x",
        "DATABASE_URL": "secret",
        "TOKEN": "t",
    }
    found = environment_of_child(tmp_path, {**given, "POCL_CACHE_DIR": "/home/user"})
    assert found.pop("PYTHONPATH")
    assert found == {
        "PATH": "/bin", "POCL_DEBUG": "1", "OCL_ICD_VENDORS": "/x", "POCL_CACHE_DIR": str(tmp_path)
    }  # fmt: skip


def spoilt(name, body):
    """Return the kernels of the trial, the called function with another body, and with another name: PoCL's
    machine code is looked for by the name, and may be there of the right one.
    """
    function, layers = trial_kernels()
    text = re.sub(r"(?s)\n{.*?\n}", f"\n{{ {body} }}", function.text, count=1)
    return Kernel(name, text.replace(function.name, name), function.common), layers


@pytest.mark.slow
def test_a_device_whose_calls_by_address_go_wrong_is_not_used_so(forget, monkeypatch, caplog):
    body = "for (int i = 0; i < 16 * units; i++) out[i] = 3.0f;"
    monkeypatch.setattr(library, "trial_kernels", lambda: spoilt("run_wrong_probe", body))
    assert not OpenClBackend.open(0, None).capabilities.shares_one_kernel
    assert "functions that are called by their addresses compute wrong results" in caplog.text


@pytest.mark.slow
def test_where_calls_by_address_crash_each_function_is_a_kernel(tmp_path, forget, monkeypatch, caplog):
    expected = run("")
    crash = "if (in) *(volatile __private int *)8 = 1;"
    monkeypatch.setattr(library, "trial_kernels", lambda: spoilt("run_crashing_probe", crash))
    forget()
    assert not OpenClBackend.open(0, tmp_path).capabilities.shares_one_kernel
    assert "ended by signal 11" in caplog.text
    np.testing.assert_allclose(run(tmp_path), expected, rtol=1e-6)
    forget()
    monkeypatch.setattr(Compilers, "compile", lambda *_: pytest.fail("compiled again"))
    np.testing.assert_allclose(run(tmp_path), expected, rtol=1e-6)
