"""The wheel's modules name their neighbours below `delegate_farm`; other words stay as they are."""

from __future__ import annotations

import pytest

from build_backend import rewritten

MODULES = {"agent", "agent.runner", "runtime", "runtime.api", "runtime.api.interpreter", "templates"}
MOVED = {
    "from runtime.api import interpreter": "from delegate_farm.runtime.api import interpreter",
    "from  runtime  import api": "from  delegate_farm.runtime  import api",
    "import runtime": "from delegate_farm import runtime",
    "import runtime.api as api": "import delegate_farm.runtime.api as api",
    'def f() -> None:\n    "é"\n    from runtime import api': (
        'def f() -> None:\n    "é"\n    from delegate_farm.runtime import api'
    ),
    'HOME = "runtime.api.interpreter"': 'HOME = "delegate_farm.runtime.api.interpreter"',
    "HOME = 'runtime.api:Interpreter'": "HOME = 'delegate_farm.runtime.api:Interpreter'",
    'files("runtime")': 'files("delegate_farm.runtime")',
    'run("-m", "agent", "--state")': 'run("-m", "delegate_farm.agent", "--state")',
    'log(loggers=("agent",))': 'log(loggers=("delegate_farm.agent",))',
    '"""`python -m agent.runner JOB`"""': '"""`python -m delegate_farm.agent.runner JOB`"""',
    'usage = f"{own} -m agent.runner {job}"': 'usage = f"{own} -m delegate_farm.agent.runner {job}"',
}
KEPT = (
    "import runtimes, agents.runner",
    "from runtimes import api",
    'role = {"agent": 1, "runtime": "x"}["agent"]',
    'lock = "agent.lock"',
    'said = "the runtime.api of agent.runner"',
    'queue = f"agent.{name}"',
    'queue = "agent." + name',
    'queue = "agent.%s" % name',
    'import_module("agents." + name)',
    'import_module(f"{__package__}.{name}")',
    "runtime.api.interpreter = agent",
    "yield_from = lambda: (yield from runtime)",
    "# from runtime import api",
)
REFUSED = ("import runtime.api", "import runtime, agent", "import os, runtime.api as api")
COMPLETED = (
    'import_module(f"agent.runner.{name}")',
    'home = f"agent.runner.{name}"',
    'import_module("runtime.api." + name)',
    'import_module(f"runtime.{name}")',
    'import_module("runtime." + name)',
    'import_module("agent.runner.%s" % name)',
    'import_module("agent.%s" % name)',
    'find_spec("runtime.{}".format(name))',
    'files(f"runtime.delegates.g{name}")',
)


@pytest.mark.parametrize("source", COMPLETED)
def test_a_name_that_only_running_completes_stops_the_build_with_its_place(source):
    with pytest.raises(ValueError, match=r"^agent/x\.py:2: put the name together from `__package__`"):
        rewritten(f"\n{source}\n", MODULES, "agent/x.py")


@pytest.mark.parametrize("source", MOVED)
def test_what_names_a_module_gets_the_name_of_the_package(source):
    assert rewritten(source + "\n", MODULES) == MOVED[source] + "\n"


@pytest.mark.parametrize("source", KEPT)
def test_words_that_name_no_module_stay(source):
    assert rewritten(source + "\n", MODULES) == source + "\n"


@pytest.mark.parametrize("source", REFUSED)
def test_an_import_that_cannot_move_stops_the_build_with_its_place(source):
    with pytest.raises(ValueError, match=r"^agent/x\.py:2: import it as `from PACKAGE import MODULE`$"):
        rewritten("\n" + source + "\n", MODULES, "agent/x.py")
