"""`benchmark_model`: LiteRT's tool with its flags, stop rule and lines, on any registered delegate."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runtime.common.litert_statistics import Statistics
from runtime.common.profile import written
from runtime.delegates.base import Array, CountsMemory
from runtime.errors import FarmRuntimeError
from runtime.evaluation import report as printed
from runtime.evaluation.files import example, graph_file
from runtime.evaluation.flags import FlagError, Flags, benchmark_flags, echo, run_tool, write
from runtime.evaluation.inputs import InputSettings
from runtime.evaluation.loop import NS_PER_US, Pace, StopRule, run_loop
from runtime.evaluation.state import Widths, runtime_details, state_lines
from runtime.measure.inputs import InputRule
from runtime.measure.loading import NotDelegatedError, Opened, Opener
from runtime.measure.memory import peak_bytes, reset_peak
from runtime.model.reader import load_model
from runtime.model.signatures import readable_model
from runtime.tools.model_profile import profile_file

_TITLES: Final = {"gpu": "GPU", "litert": "XNNPACK"}
"""LiteRT's names of delegates in its lines; others have their own."""

_OF_OPERATORS: Final = (
    "enable_op_profiling",
    "print_preinvoke_state",
    "print_postinvoke_state",
    "export_model_runtime_info",
)
"""Flags that ask for what only this interpreter knows of a model, and delegates that take operators of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A delegate and its options; `is_explicit` where a flag chose it."""

    kind: str
    options: dict[str, str | int]
    is_explicit: bool

    @classmethod
    def of(cls, flags: Flags) -> "Choice":
        """Read the flags of delegates. Raises `FlagError` where they choose two."""
        kinds = [flags.text("delegate")] if flags.text("delegate") else []
        kinds += ["gpu"] if flags.is_set("use_gpu") else []
        kinds += ["litert"] if flags.is_set("use_xnnpack") else []
        if len(set(kinds)) > 1:
            raise FlagError(f"the flags choose {' and '.join(kinds)}; choose one delegate")
        kind = kinds[0] if kinds else "cpu"
        options: dict[str, str | int] = {}
        for part in filter(None, flags.text("delegate_options").split(";")):
            name, colon, value = part.partition(":")
            if not colon or not name:
                raise FlagError(f"--delegate_options: {part!r} is not of the form NAME:VALUE")
            options[name] = value
        if flags.integer("num_threads") > 0:
            # What --delegate_options says of the delegate goes before the general flag.
            options.setdefault("threads", flags.integer("num_threads"))
        if kind == "gpu":
            # Only where it is given: its default, true, would choose fp16 for those who asked for nothing.
            if "gpu_precision_loss_allowed" in flags.explicit:
                allowed = flags.is_set("gpu_precision_loss_allowed")
                options.setdefault("precision", "fp16" if allowed else "fp32")
            for name in ("max_delegated_partitions", "min_nodes_per_partition"):
                if flags.integer(name) > 0:
                    options.setdefault(name, flags.integer(name))
        return cls(kind, options, bool(kinds))


def main(words: Sequence[str] | None = None) -> int:
    """Run the tool on the words of a command line, by default this process's; return its exit code."""
    return run_tool("benchmark_model", "graph", benchmark_flags(), words, benchmark)


def benchmark(flags: Flags) -> None:
    """Measure one model and print LiteRT's lines. Raises the runtime's errors and `OSError`."""
    if not flags.text("graph"):
        raise FlagError("--graph=FILE is missing")
    if flags.is_set("enable_op_profiling"):
        profile_mode(flags)
    if flags.is_set("export_model_runtime_info") and not flags.text("model_runtime_info_output_file"):
        raise FlagError("--export_model_runtime_info=true needs --model_runtime_info_output_file=PATH")
    for line in echo(flags, benchmark_flags()):
        write(line)
    with graph_file(flags.text("graph")) as file:
        _run_signature(flags, file)


def _run_signature(flags: Flags, file: Path) -> None:
    signatures = [one.key for one in load_model(file).signatures]
    if flags.is_set("list_signatures"):
        for line in printed.signature_lines(signatures):
            write(line)
        return
    key = _signature(flags.text("signature_to_run_for"), signatures)
    if key:
        write(f"Using signature: {key}")
    # A model of one signature is run as it is: its graph is the first one, by the names of its tensors.
    with readable_model(file, key if len(signatures) > 1 else None) as (path, _):
        _benchmark(flags, str(path), file)


def _signature(wanted: str, signatures: Sequence[str]) -> str:
    """Return the signature that is run; empty for a model without one. Raises `FlagError`."""
    if wanted in signatures:
        return wanted
    if wanted or len(signatures) > 1:
        told = ", ".join(signatures) or "none"
        raise FlagError(f"--signature_to_run_for={wanted}: choose one of the model's signatures: {told}")
    return signatures[0] if signatures else ""


def _benchmark(flags: Flags, graph: str, file: Path) -> None:
    """Measure the first graph of a file; `file` is what the user named."""
    settings, choice = InputSettings.of(flags), Choice.of(flags)
    size = file.stat().st_size
    # Its imports are the tool's own, and no part of the model's start.
    opener = Opener.prepare(choice.kind, choice.options)
    for name in _OF_OPERATORS:
        if flags.is_set(name) and hasattr(opener.factory, "load"):
            raise FlagError(f"--{name}=true: {choice.kind} runs whole models and tells no operators")
    before = peak_bytes()
    has_peak = flags.is_set("report_peak_memory_footprint") and reset_peak()
    # After the reset the peak is what is resident now, which growth is counted from.
    before = min(before, peak_bytes()) if has_peak else before
    started = time.perf_counter_ns()
    opened = _open(opener, graph, choice, settings, flags)
    init_us = (time.perf_counter_ns() - started) // NS_PER_US
    init_bytes = max(0, peak_bytes() - before)
    write(f"The input model file size (MB): {size / printed.MB:g}")
    write(f"Initialized session in {init_us / 1000:g}ms.")
    model: Any = opened.model
    details = model.get_input_details()
    values = settings.values(details)
    _write_state(flags, model, "print_preinvoke_state")
    warmup, regular = _phases(flags, model, [int(d["index"]) for d in details], values)
    _write_state(flags, model, "print_postinvoke_state")
    delegate: object = opened.delegate
    found = printed.Timings(
        init_us=init_us,
        warmup=warmup,
        regular=regular,
        model_bytes=size,
        input_bytes=sum(value.nbytes for value in values),
        init_bytes=init_bytes,
        overall_bytes=max(0, peak_bytes() - before),
        peak_bytes=peak_bytes() if flags.is_set("report_peak_memory_footprint") else None,
        device_bytes=delegate.device_bytes if isinstance(delegate, CountsMemory) else None,
    )
    for line in printed.summary_lines(found):
        write(line)
    if flags.is_set("enable_op_profiling") and not flags.is_set("dry_run"):
        write_profile(flags, graph, choice.kind, choice.options, settings.ranged_rules(details))
    _write_files(flags, model, found)


def _open(opener: Opener, graph: str, choice: Choice, settings: InputSettings, flags: Flags) -> Opened:
    """Open the model; the interpreter alone runs one of which the delegate takes nothing, as in LiteRT."""
    title = _TITLES.get(choice.kind, choice.kind)
    refused: NotDelegatedError | None = None
    try:
        opened = opener.open(graph, settings.rules())
    except NotDelegatedError as error:
        refused = error
        # The other options are the refused delegate's, and the interpreter would refuse them as unknown.
        threads = {name: value for name, value in choice.options.items() if name == "threads"}
        opened = Opener.prepare("cpu", threads).open(graph, settings.rules())
    report = opened.delegation if refused is None else refused.delegation
    if flags.is_set("require_full_delegation"):
        if choice.kind != "cpu" and report is None:
            raise FarmRuntimeError(f"--require_full_delegation: {choice.kind} does not tell what it runs")
        if report is None or report.delegated_ops < report.total_ops:
            raise FarmRuntimeError("Disallowed CPU fallback detected.")
    write(f"Loaded model {flags.text('graph')}")
    if choice.is_explicit and choice.kind != "cpu":
        write(f"Created TensorFlow Lite delegate for {title}.")
        # Of a peer without a report nobody knows how much of the model it runs.
        if report is not None:
            write(printed.delegate_line(title, report.delegated_ops, report.total_ops, report.partitions))
    return opened


def _phases(
    flags: Flags, model: Any, indices: Sequence[int], values: Sequence[Array]
) -> tuple[Statistics, Statistics]:
    def prepare() -> None:
        for index, value in zip(indices, values, strict=True):
            model.set_tensor(index, value)

    pace = Pace(flags.number("run_delay"), flags.number("run_frequency"))
    found = []
    for runs, seconds in (("warmup_runs", "warmup_min_secs"), ("num_runs", "min_secs")):
        rule = StopRule(flags.integer(runs), flags.number(seconds), flags.number("max_secs"))
        if flags.is_set("dry_run"):
            rule = StopRule(0, -1.0, rule.max_secs)
        write(printed.phase_line(rule))
        found.append(Statistics(run_loop(rule, pace, prepare, model.invoke)))
        write(found[-1].line())
    return found[0], found[1]


def _write_state(flags: Flags, model: Any, flag: str) -> None:
    if flags.is_set(flag):
        parts = ("tensor_name", "tensor_type", "alloc_type")
        widths = Widths(*(flags.integer(f"{part}_display_length") for part in parts))
        for line in state_lines(model.state(), len(model.model.subgraphs), widths):
            write(line)


def _write_files(flags: Flags, model: Any, found: printed.Timings) -> None:
    if flags.is_set("export_model_runtime_info"):
        details = runtime_details(Path(flags.text("graph")).name, model.state())
        Path(flags.text("model_runtime_info_output_file")).write_bytes(details)
    if flags.text("result_file_path"):
        path, name = Path(flags.text("result_file_path")), flags.text("benchmark_name")
        if path.suffix == ".json":
            whole = printed.document(name, found) | printed.samples_document(found)
            path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        else:
            path.write_bytes(printed.result_message(printed.document(name, found)))
    outputs = [(str(d["name"]), model.get_tensor(d["index"])) for d in model.get_output_details()]
    if flags.text("output_filepath"):
        Path(flags.text("output_filepath")).write_bytes(b"".join(array.tobytes() for _, array in outputs))
    if flags.text("output_proto_filepath"):
        Path(flags.text("output_proto_filepath")).write_bytes(example(outputs))


_MODES: Final = ("stdout", "csv", "proto")

_ROUNDS: Final = 10
"""Runs of the pass, each in which every operator is timed by itself. Chosen: as `farm model profile`."""


def write_profile(
    flags: Flags, graph: str, kind: str, options: Mapping[str, Any], rules: Mapping[str, InputRule]
) -> None:
    """Profile the model once more and write what the flags ask for, by default to the tool's output.

    Raises `FlagError` for an unknown mode, and as `profile_file` where a delegate tells no operators.
    """
    mode, target = profile_mode(flags)
    profile = profile_file(Path(graph), kind, options, rules, _ROUNDS).profile
    if mode == "proto":
        Path(target).write_bytes(printed.profile_message(Path(flags.text("graph")).name, profile))
        return
    lines = written(profile, "", "csv" if mode == "csv" else "tables")
    if target:
        Path(target).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    else:
        for line in lines:
            write(line)


def profile_mode(flags: Flags) -> tuple[str, str]:
    """Return the form of the profile, and the file that it is for; empty: the output. Raises `FlagError`."""
    if csv := flags.text("profiling_output_csv_file"):
        return "csv", csv
    mode, target = flags.text("op_profiling_output_mode"), flags.text("op_profiling_output_file")
    if mode not in _MODES:
        raise FlagError(f"--op_profiling_output_mode={mode}: expected one of {', '.join(_MODES)}")
    if mode == "proto" and not target:
        raise FlagError("--op_profiling_output_mode=proto needs --op_profiling_output_file=PATH")
    return mode, target
