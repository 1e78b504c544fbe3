"""The verb `farm model bench`, which imports the tool when it runs."""

from typing import Any

import typer
from typer.core import TyperGroup


class Bench(TyperGroup):
    """Takes LiteRT's words as they are: `farm model bench FILE --NAME=VALUE…`."""

    def run(self, words: list[str]) -> int:
        """Run the tool; return its exit code."""
        from runtime.evaluation.benchmark_model import main  # noqa: PLC0415  # `farm --help` needs no numpy

        return main(words)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep all words; the tool's own parser reads them."""
        ctx.meta["words"] = [f"--graph={args[0]}", *args[1:]] if args and args[0][:1] != "-" else list(args)
        return []

    def invoke(self, ctx: Any) -> Any:
        """Run the tool and end with its exit code."""
        ctx.exit(self.run(ctx.meta["words"]))


def bench_verb(group: type[Bench] = Bench) -> typer.Typer:
    """`farm model bench FILE`."""
    app = typer.Typer(cls=group, help="Benchmark a model as LiteRT's benchmark_model does.")
    app.callback(invoke_without_command=True)(lambda: None)
    return app
