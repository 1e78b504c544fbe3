"""`farm model …`: the verbs of the runtime, each within the boundary of a runner.

A stranger's model is run there with native code. `FARM_RUNNER_SANDBOX=off` calls the verbs as they are.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import typer
from typer.core import TyperGroup

from runtime.tools import verbs


def model_verbs() -> typer.Typer:
    """`farm model`."""
    app = verbs.model_verbs()
    for command in app.registered_commands:
        assert command.name is not None
        assert command.callback is not None
        command.callback = _enclosed(command.name, command.callback)
    bench = typer.Typer(cls=_Bench, help="Benchmark a model as LiteRT's benchmark_model does.")
    bench.callback(invoke_without_command=True)(lambda: None)
    app.add_typer(bench, name="bench")
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


class _Bench(TyperGroup):
    """Takes LiteRT's words as they are: `farm model bench FILE --NAME=VALUE…`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep all words; the tool's own parser reads them."""
        ctx.meta["words"] = [f"--graph={args[0]}", *args[1:]] if args and args[0][:1] != "-" else list(args)
        return []

    def invoke(self, ctx: Any) -> Any:
        """Run the tool within the boundary and end with its exit code."""
        from agent.enclosed import run_bench  # noqa: PLC0415  # as above

        code = run_bench(ctx.meta["words"])
        if code is None:
            from runtime.evaluation.benchmark_model import main  # noqa: PLC0415  # as above

            code = main(ctx.meta["words"])
        ctx.exit(code)
