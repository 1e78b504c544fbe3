"""A flame graph as one page that a browser opens: the run, its steps, their kernels, the operators in these.

The graph's data is JSON in the page, and the page loads nothing else.
"""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from itertools import groupby
from typing import Any

from runtime.common.profile.model import ModelProfile, OperatorTime, ProfileRow


def flame_page(profile: ModelProfile, title: str) -> str:
    """Return the page."""
    text = files("runtime.common.profile").joinpath("flame.html").read_text(encoding="utf-8")
    # No name in a model may end the element that holds the data.
    data = json.dumps({"title": title, "root": frames(profile)}).replace("<", "\\u003c")
    return text.replace("FRAMES", data)


def frames(profile: ModelProfile) -> dict[str, Any]:
    """Return the outermost frame; a frame holds the frames of its parts and is as long as all of these."""
    operators = {one.index: one for one in profile.operators}
    if profile.rows:
        steps = groupby(profile.rows, key=lambda row: row.step)
        inner = [_step(number, list(rows), operators) for number, rows in steps]
    else:
        timed = [one for one in profile.operators if one.place != "none"]
        inner = [
            _frame("on the CPU" if place == "cpu" else "delegated", "", map(_operator, ones))
            for place, ones in groupby(timed, key=lambda one: one.place)
        ]
    return _frame("one run", profile.caution, inner)


def _step(number: int, rows: list[ProfileRow], operators: Mapping[int, OperatorTime]) -> dict[str, Any]:
    inner = [_row(row, operators) for row in rows]
    return inner[0] if rows[0].place == "cpu" else _frame(f"step {number}: delegated", "", inner)


def _row(row: ProfileRow, operators: Mapping[int, OperatorTime]) -> dict[str, Any]:
    speed = ", ".join(
        f"{figure:.2f} {unit}"
        for figure, unit in ((row.gflops, "GFLOP/s"), (row.gigabytes, "GB/s"))
        if figure
    )
    about = "; ".join(filter(None, (row.label, speed)))
    ones = [operators[index] for index in row.operators if index in operators]
    whole = sum(one.time_ns for one in ones)
    if row.place == "cpu" or not whole:
        name = f"{ones[0].index} {ones[0].name}" if row.place == "cpu" and ones else row.name
        return {"name": name, "ns": row.time_ns, "about": about, "frames": []}
    # Of an operator of several kernels, the part that is this kernel's.
    inner = [_operator(one) | {"ns": row.time_ns * one.time_ns / whole} for one in ones]
    return _frame(row.name, about, inner)


def _operator(one: OperatorTime) -> dict[str, Any]:
    return {"name": f"{one.index} {one.name}", "ns": one.time_ns, "about": one.tensors, "frames": []}


def _frame(name: str, about: str, inner: Iterable[dict[str, Any]]) -> dict[str, Any]:
    held = list(inner)
    return {"name": name, "ns": sum(one["ns"] for one in held), "about": about, "frames": held}
