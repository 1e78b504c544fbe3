"""The table of `coverage.py`."""

from collections.abc import Mapping
from typing import Any, Final

_REASON_CHARACTERS = 90
"""Characters of a reason that a row of the table quotes: names of tensors can be very long."""

_LOSSY = ("fp16", "bf16")

WORK_GROUPS: Final[Mapping[str, Mapping[str, Any]]] = {
    "groups": {"device_class": "gpu", "tuning": "none"},
    "groups_fp16": {"device_class": "gpu", "tuning": "none", "precision": "fp16"},
    "rusticl": {"device": "rusticl", "device_class": "gpu", "tuning": "none"},
    "rusticl_fp16": {"device": "rusticl", "device_class": "gpu", "tuning": "none", "precision": "fp16"},
    "vulkan": {"backend": "vulkan"},
    "vulkan_fp16": {"backend": "vulkan", "precision": "fp16"},
    "opengl": {"backend": "opengl"},
}
"""Options of the ways that run the kernels of work-groups. On processors timing would choose among them for
a processor, and each candidate costs seconds of the compiler."""

_HEAD = """\
# Coverage: LiteRT's published table on the `gpu` delegate

LiteRT publishes for 60 models whether its GPU delegate takes them whole (`full`, 42) or in part (`partial`,
18) on a Galaxy S24. This is what ours does with the same 60 networks, rebuilt with random weights, in fp32.
*Taken* says how many operators the delegate runs, in one partition; *agrees* is the distance from delegate
`cpu` on random inputs, the relative L2 norm of the worst output, and whether it is within 1e-4
([measuring.md](measuring.md)).
fp16 and bf16 round the weights to that type, and fp16 what kernels of work-groups leave for each other; their
bound is 2e-2.
`python -m benchmarks.coverage` writes this page.

"""


_NARROW_HEAD = """\

## Narrow weights

Variants of the same networks whose weights the file holds in fp16 or as integers, with float32 activations.
They stay so on the device. *Constants* are all constants in device memory, as a share of what they are with
weights widened to float32; *equal* says whether both runs give the same bits. Where weights are integers,
`cpu` rounds activations to levels and the GPU does not; the distance is judged by that.

| model | operators | taken | constants | equal | agrees |
|---|---:|---:|---:|---|---|
"""


_QUANTISED_HEAD = """\

## Quantised models

Variants that are quantised whole. *Simulated* computes with real numbers and rounds to the levels of each
tensor, which is the default; *integers* is the precision `int8`, whose outputs must have the bits of `cpu`.
Three sets of random inputs each.

| model | operators | simulated: taken | agrees | integers: taken | equal |
|---|---:|---:|---|---:|---|
"""


_WORK_GROUPS_HEAD = """\

## Kernels of work-groups

The same networks with the kernels that GPUs get, on drivers of the CPU: PoCL (`groups`), Mesa's rusticl, and
Mesa's software adapters through WebGPU (`vulkan`, `opengl`), as far as they were tried. Through WebGPU,
operators without such a kernel stay on `cpu`; OpenCL runs kernels of units for them. A cell says how many
operators were taken, where it is not all, and whether the network that was run agrees; *not run* asked only
which are taken.

Mesa 22.3's rusticl, Debian 12's, says of every kernel that it takes 32 work-items, and runs 1,024: so the
delegate takes nothing there in these kernels. For `rusticl` that answer is passed over, and nothing else.

"""


def markdown(report: Mapping[str, Any]) -> str:
    """Return the whole page."""
    rows: Mapping[str, Mapping[str, Any]] = report.get("rows", {})
    whole = sum(row.get("status") == "full" for row in rows.values())
    ran = sum("verdict" in row for row in rows.values())
    agreed = sum(row.get("verdict") == "pass" for row in rows.values())
    lines = [
        f"**Of {len(rows)} models {whole} are taken whole; {ran} were run and {agreed} agree with `cpu`.**",
        *(_count(precision, rows) for precision in _LOSSY if any(precision in row for row in rows.values())),
        "",
        "| model | LiteRT | operators | taken | agrees | fp16 | bf16 | what stays on the CPU |",
        "|---|---|---:|---:|---|---|---|---|",
    ]
    lines += [_line(name, row) for name, row in sorted(rows.items())]
    page = _HEAD + "\n".join(lines) + "\n"
    for key, head, line in (
        ("narrow", _NARROW_HEAD, _narrow_line),
        ("quantised", _QUANTISED_HEAD, _quantised_line),
    ):
        if key in report:
            page += head + "".join(line(*item) for item in sorted(report[key].items()))
    return page + _work_groups(rows)


def _work_groups(rows: Mapping[str, Mapping[str, Any]]) -> str:
    tried = [name for name in WORK_GROUPS if any(name in row for row in rows.values())]
    if not tried:
        return ""
    lines = [f"| model | {' | '.join(tried)} | what stays on the CPU |", f"|---|{'---|' * len(tried)}---|"]
    for name, row in sorted(rows.items()):
        ways = [row.get(one, {}) for one in tried]
        left = next((_left(way) for way in ways if way.get("left")), "")
        lines.append(_cells(name, *map(_taken_and_agrees, ways), left))
    return _WORK_GROUPS_HEAD + "\n".join((*(_whole(name, rows) for name in tried), "", *lines)) + "\n"


def _whole(name: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    found = [row[name] for row in rows.values() if name in row]
    whole = sum(one.get("status") == "full" for one in found)
    # Where nothing was taken, `cpu` was compared with itself.
    ran = sum("verdict" in one and one["delegated"] > 0 for one in found)
    agreed = sum(one.get("verdict") == "pass" and one["delegated"] > 0 for one in found)
    return f"- {name}: {whole} of {len(found)} taken whole; {ran} were run and {agreed} agree."


def _taken_and_agrees(row: Mapping[str, Any]) -> str:
    if not row:
        return ""
    taken = _taken(row)
    if taken in ("all", "-"):
        return _agrees(row)
    return f"{taken} taken" + (f"; {_agrees(row)}" if row["delegated"] else "")


def _count(precision: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    tried = [row[precision] for row in rows.values() if precision in row]
    agreed = sum(row.get("verdict") == "pass" for row in tried)
    return f"In {precision} {len(tried)} were run and {agreed} agree within 2e-2."


def _narrow_line(name: str, row: Mapping[str, Any]) -> str:
    share = f"{row['share']:.2f}" if "share" in row else "-"
    equal = {True: "yes", False: "**no**"}.get(row.get("equal"), "-")
    return f"| {name} | {row['operators']} | {_taken(row)} | {share} | {equal} | {_agrees(row)} |\n"


def _quantised_line(name: str, row: Mapping[str, Any]) -> str:
    ways = [row.get(way, {}) for way in ("simulated", "int8")]
    cells = " | ".join(f"{_taken(way)} | {_agrees(way)}" for way in ways)
    return f"| {name} | {row['operators']} | {cells} |\n"


def row_line(name: str, row: Mapping[str, Any]) -> str:
    """One row, for the terminal."""
    return f"{name}: {_taken(row)} taken; {_agrees(row)}; {_left(row)}"


def _line(name: str, row: Mapping[str, Any]) -> str:
    lossy = (_agrees(row[precision]) if precision in row else "" for precision in _LOSSY)
    return _cells(
        name, row["published"], str(row["operators"]), _taken(row), _agrees(row), *lossy, _left(row)
    )


def _cells(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _taken(row: Mapping[str, Any]) -> str:
    if "status" not in row:
        return "-"
    return "all" if row["status"] == "full" else f"{row['delegated']} of {row['total']}"


def _agrees(row: Mapping[str, Any]) -> str:
    if "verdict" not in row:
        return row.get("error", "not run")
    figure = "-" if row["rel_l2"] is None else f"{row['rel_l2']:.1e}"
    return f"yes, {figure}" if row["verdict"] == "pass" else f"**no**, {figure} {row['note']}".rstrip()


def _left(row: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{op} ({count}): {reason[:_REASON_CHARACTERS]}" for op, count, reason in row.get("left", ())
    )
