"""`farm model …`: the verbs of the runtime, each within the boundary of a runner.

A stranger's model is run there with native code. `FARM_RUNNER_SANDBOX=off` calls the verbs as they are.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from runtime.evaluation import verb as evaluation
from runtime.tools import verbs


def model_verbs() -> typer.Typer:
    """`farm model`."""
    app = verbs.model_verbs()
    for command in app.registered_commands:
        assert command.name is not None
        assert command.callback is not None
        command.callback = _enclosed(command.name, command.callback)
    app.add_typer(bench_verb(), name="bench")
    return app


def _enclosed(name: str, verb: Callable[..., int]) -> Callable[..., int]:
    @wraps(verb)
    def run_verb(**options: Any) -> int:
        # `farm --help` does without the agent's modules.
        from agent.enclosed import run  # noqa: PLC0415

        code = run(name, options)
        if code:
            raise typer.Exit(code)
        return verb(**options) if code is None else 0

    return run_verb


class _EnclosedBench(evaluation.Bench):
    """The runtime's, which runs in a process of its own."""

    def run(self, words: list[str]) -> int:
        """Run the tool within the boundary; return its exit code."""
        from agent.enclosed import run_bench  # noqa: PLC0415  # as above

        code = run_bench(words)
        return super().run(words) if code is None else code


def bench_verb() -> typer.Typer:
    """`farm model bench FILE`."""
    return evaluation.bench_verb(_EnclosedBench)
