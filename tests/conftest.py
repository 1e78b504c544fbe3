"""For every test: one BLAS thread (several spin against whatever else runs), its own device leases and umask,
the same processes that compile kernels, and the same drawn examples in every run.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: it starts the threads

# A shell without job control starts what it puts into the background with SIGINT ignored, and every program
# that a test starts would inherit that: a Ctrl-C sent to it would have no effect.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # as above
import pytest

from agent.attempt.lease import LEASES_VARIABLE  # as above
from tests import oracle  # as above

# Neither chance nor the time that an example takes on a busy machine decides whether a test passes.
hypothesis.settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")

# Tests and modules are never garbage: looking through them took a sixth of the time to list the tests.
gc.disable()

# Tests leave devices of drivers with threads, which a fork has not got: to collect one there would never end.
os.register_at_fork(after_in_child=gc.disable)

pytest_plugins = ("tests.services.fixtures", "tests.sharing")


def pytest_collection_finish() -> None:
    """Collect garbage again from here on, without looking at what is there already."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep LiteRT's answers in the default suite alone."""
    oracle.keeps_answers = item.get_closest_marker("exhaustive") is None


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents wait for those of their own process alone, not for another worker's or a farm's of this host."""
    os.environ[LEASES_VARIABLE] = str(tmp_path_factory.mktemp("leases"))


@pytest.fixture(scope="session", autouse=True)
def known_to_agents(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents of all workers know the devices and the references that one of them has found out."""
    from tests.services import known

    base = tmp_path_factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ.setdefault(known.VARIABLE, str(run / "known-to-agents"))


COMPILERS_IDLE_S = 30.0
"""Seconds without a request after which a process that compiles kernels ends. Chosen: longer than the tests
of one file need between two models. Smaller starts more of them, larger keeps the memory of those of a worker
that goes on to other tests.
"""


@pytest.fixture(scope="session", autouse=True)
def lasting_compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the models of this process in the same child processes, whatever their cache is, and only
    kernels that no earlier run has kept; a device is probed once, too.

    Tests open caches of their own by the hundred. Each would start two children, which need a second of a
    processor until they compile, more than most of these models' kernels.
    """
    from runtime.delegates.gpu.backends.opencl import backend, library
    from runtime.delegates.gpu.backends.opencl.compilers import Compilers
    from tests.services.kept_kernels import keeping_compilers, probe_once

    folder = tmp_path_factory.mktemp("compiling")

    def lasting(index: int, name: str, _: object) -> Compilers:
        return keeping_compilers(index, name, folder, COMPILERS_IDLE_S)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "compilers", lasting)
        patch.setattr(backend, "probe_precision", probe_once)
        yield


_UMASK = os.umask(0o022)
"""The mask of modes with which the tests were started."""
os.umask(_UMASK)


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """Restore the umask: a program called in this process keeps its files private, and the next test's own
    server could then not read files made for it.
    """
    yield
    os.umask(_UMASK)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which examples of the operators' properties LiteRT did not run."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    texts = sorted({str(text) for name, text in properties if name == oracle.NOT_RUN})
    if texts:
        terminalreporter.section(oracle.NOT_RUN)
        for text in texts:
            terminalreporter.write_line(text)
