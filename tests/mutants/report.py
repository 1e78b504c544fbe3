"""The table of `benchmarks/results/mutants.md`: each protection that was taken away, and what noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.mutants.catalogue import Mutant
from tests.mutants.workplace import Outcome


def report(chosen: Sequence[Mutant], outcomes: Mapping[Mutant, Outcome], survivors: int) -> str:
    """Return it as Markdown. `chosen` includes the mutants that no test can notice, with their reasons."""
    run = [mutant for mutant in chosen if mutant.equivalent is None]
    picked = [mutant for mutant in run if not mutant.is_generated]
    generated = [mutant for mutant in run if mutant.is_generated]
    equivalent = [mutant for mutant in chosen if mutant.equivalent is not None]
    in_functions = [mutant for mutant in equivalent if mutant.is_generated]
    lines = [
        "# Mutants: every protection taken away, and the test that notices",
        "",
        f"`make mutate`: **{len(run) - survivors} of {len(run)} mutants are noticed, {survivors} survive.**",
        f"{len(picked)} are protections picked by hand, {len(generated)} small changes of the functions that",
        f"decide; {len(equivalent)} more changes have no effect that a caller can see, and are listed with",
        "the reason.",
        "",
        "## Protections",
        "",
        "| area | taken away | file | noticed by |",
        "|---|---|---|---|",
        *(
            f"| {mutant.area} | {_cell(mutant.what)} | `{mutant.file}` | {_by(outcomes[mutant])} |"
            for mutant in picked
        ),
        "",
        "## Every small change of the functions that decide",
        "",
        "A condition negated, a comparison moved, an operand or a statement dropped, a number raised by one.",
        "",
        "| function | changes | noticed | without effect |",
        "|---|---:|---:|---:|",
        *_counts(generated, in_functions, outcomes),
        "",
        "## Changes without effect",
        "",
        "| where | change | why no test can notice |",
        "|---|---|---|",
        *(f"| {_place(mutant)} | {_change(mutant)} | {mutant.equivalent} |" for mutant in equivalent),
    ]
    return "\n".join(lines) + "\n"


def _counts(
    generated: Iterable[Mutant], equivalent: Iterable[Mutant], outcomes: Mapping[Mutant, Outcome]
) -> list[str]:
    without_effect = Counter(map(_function, equivalent))
    made: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for mutant in generated:
        made[_function(mutant)] += 1
        noticed[_function(mutant)] += outcomes[mutant].verdict != "survived"
    names = dict.fromkeys([*made, *without_effect])
    return [f"| `{n}` | {made[n] + without_effect[n]} | {noticed[n]} | {without_effect[n]} |" for n in names]


def _function(mutant: Mutant) -> str:
    file, _, rest = mutant.name.partition("::")
    return f"{file}::{rest.partition(': ')[0]}"


def _place(mutant: Mutant) -> str:
    return f"`{_function(mutant) if mutant.is_generated else mutant.file}`"


def _change(mutant: Mutant) -> str:
    return f"`{_cell(mutant.what)}`" if mutant.is_generated else f"without: {_cell(mutant.what)}"


def _by(outcome: Outcome) -> str:
    return f"`{_cell(outcome.by)}`" if outcome.verdict == "noticed" else f"**{outcome.verdict}**"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").removeprefix("tests/")
