"""The delegate's options, parsed once and strictly from the mapping that a user gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final

from runtime.delegates.descriptor import VERSION, Option, commit_option, threads_option
from runtime.delegates.gpu.settings.choices import parsed, written
from runtime.delegates.gpu.settings.litert_options import DECLARED, NAMES, not_allowed, translated
from runtime.errors import DelegateError

INTERFACES = ("opencl", "cuda", "vulkan", "opengl", "metal", "d3d12")
"""The interfaces through which a campaign may ask for a device; all but the first two by WebGPU."""

BACKENDS = (*INTERFACES, "webgpu")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "int8")
_LOSSY = frozenset({"tf32", "fp16", "bf16"})
WEIGHTS = ("stored", "float32")
TUNING_EFFORTS = ("none", "fast", "exhaustive")
PERSISTENT_MODES = ("auto", "off", "on")
DEVICE_CLASSES = ("auto", "cpu", "gpu", "lanes")
MEMORY = ("fast", "least")
ROUNDINGS = ("reference", "xnnpack")
CONFORMANCE = ("kept", "ignored")
PASSES = (
    "hoist_transpose", "join_moves", "remove_identity", "merge_padding", "fuse_norms", "fuse_swish",
    "fuse_levels", "fold_scale", "fold_transpose", "fuse_epilogue",
)  # fmt: skip
WAIT_TYPES = ("passive", "active", "aggressive", "do_not_wait")

MOST_PARTITIONS: Final = 10_000
"""The largest `max_delegated_partitions` of a campaign file. Chosen far above the partitions that a model of
a few thousand operators can have; a larger bound would allow nothing more."""

MOST_MILLISECONDS: Final = 3_600_000
"""The largest `deadline_ms` of a campaign file, in milliseconds: an hour. Chosen above the time limit of any
attempt; a larger bound would only let a typing error pass."""

MOST_OPERATORS: Final = 1_000_000
"""The largest index of an operator in a campaign file. Chosen far above the operators of any model."""


def _any_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise not_allowed(name, "a text", value)
    return value


def _word(name: str, value: Any) -> str:
    if not _any_text(name, value):
        raise DelegateError(f"gpu delegate: option {name!r} must not be empty")
    return str(value)


def _at_least(least: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        # The comparison of texts rejects 1.0 and "07", for which `int` succeeds.
        if isinstance(value, bool) or number < least or str(number) != str(value):
            raise not_allowed(name, f"a whole number of at least {least}", value)
        return number

    return parse


def _truth(name: str, value: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in known:
        raise not_allowed(name, "true or false", value)
    return known[str(value).lower()]


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def parse(name: str, value: Any) -> str:
        if value not in allowed:
            raise not_allowed(name, f"one of {', '.join(allowed)}", value)
        return str(value)

    return parse


def _passes(name: str, value: Any) -> str:
    for one in _names(_any_text(name, value)):
        if one not in PASSES:
            raise DelegateError(
                f"gpu delegate: option {name!r}: {one!r} is no pass that can be left out; these are "
                f"{', '.join(PASSES)}"
            )
    return str(value)


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _device(name: str, value: Any) -> str | int:
    # A bool is an int too, and True is not device 1.
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise not_allowed(name, "a device's name, id or index", value)
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _choices(name: str, value: Any) -> str:
    return written(parsed(_any_text(name, value)))


def _context(name: str, value: Any) -> Any:
    # Told by what it has: to parse options, pyopencl need not be installed.
    devices = getattr(value, "devices", None)
    if not isinstance(devices, list) or len(devices) != 1:
        has = f"one of {len(devices)} devices" if isinstance(devices, list) else repr(value)
        raise DelegateError(
            f"gpu delegate: option {name!r} must be a pyopencl.Context of one device, got {has}"
        )
    return value


def _option(default: Any, parse: Callable[[str, Any], Any], campaign: Option | None = None) -> Any:
    """Return a field with its parser; `campaign` declares what a campaign file may give it, if anything."""
    return field(default=default, metadata={"parse": parse, "campaign": campaign})


def _choice(default: str | None, allowed: tuple[str, ...], purpose: str = "") -> Any:
    campaign = Option(value_type=str, choices=allowed, default=default, help=purpose) if purpose else None
    return _option(default, _one_of(*allowed), campaign)


def _number(default: int | None, least: int, most: int | None = None, purpose: str = "") -> Any:
    bounded = Option(value_type=int, minimum=least, maximum=most, default=default, help=purpose)
    return _option(default, _at_least(least), bounded if purpose else None)


def _flag(default: bool | None, purpose: str) -> Any:
    return _option(default, _truth, Option(value_type=bool, default=default, help=purpose))


def _text(default: str | None, parse: Callable[[str, Any], str], purpose: str = "") -> Any:
    campaign = Option(value_type=str, default=default, help=purpose) if purpose else None
    return _option(default, parse, campaign)


@dataclass(frozen=True, slots=True)
class Options:
    """Effective options: each with its default, its parser, and what a campaign file may give it.

    A field without a help text is not for campaigns: `device` and `cache_dir` are chosen by the farm, and so
    is what a check found of the device; a context lives in one process.

    - `backend`: "opencl", "cuda", or the interface of WebGPU's adapters: "vulkan", "opengl", "metal",
      "d3d12", or "webgpu" for any of these. WebGPU runs the kernels of work-groups alone; operators without
      one stay on the CPU.
    - `device`: an index into the backend's list of devices, or a part of a device's or platform's name. None
      chooses a GPU where there is one, else a CPU device.
    - `device_class`: which kernels the device gets, for tests and plans: "cpu" those of few workers with wide
      vectors, "gpu" those of work-groups that share local memory, "lanes" those of work-groups that share
      nothing; "auto" decides by the device's type. No adapter of WebGPU runs kernels of the class "cpu".
    - `precision`: "fp32", or "fp16" or "bf16": weights are rounded to that type (`precision.py` says what
      else); "tf32": matrix units round both sides of products to TF32; a device without them is refused;
      or "int8": quantised tensors stay integers, and operators on them that have integer kernels give
      the bits of the CPU path; the others stay there, and float rows that meet weights of levels are
      quantised in every run. None is fp32, except as `precision_loss_allowed` says;
      quantised tensors stay integers then, too, where the device gains by it and has all kernels for it.
    - `rounding`: "reference" gives integer products of convolutions and matrices the bits of LiteRT's
      reference kernels, "xnnpack" those of XNNPACK, which scales a sum in float32 and rounds it once.
    - `precision_loss_allowed`: false forbids tf32, fp16 and bf16; true chooses fp16 where `precision` is not
      given and the device can store it.
    - `require_narrow_products`: a `precision` in which the device does not multiply, or gains nothing by it,
      is refused; without this option weights alone have it there.
    - `weights`: "stored" keeps fp16 and integer weights as the file has them and widens them in registers;
      "float32" widens them once, to the same numbers, in two to eight times the memory.
    - `threads`: most work-groups that run at the same time on a CPU device; None for all it has.
    - `tuning`: "none" relies on the cost models, "fast" measures the heaviest nodes for at most 0.3 seconds,
      "exhaustive" every node for at most a minute. Nothing is measured while other work has the processors.
    - `choices`: what an earlier start chose by timing (`choices` of its `describe()`), to be used again: then
      nothing is timed, and a comparison that it does not decide is an error. None: this start chooses.
    - `persistent`: whether one kernel runs many layers, on PoCL's CPU devices of the class "cpu" alone;
      "auto" is "on", or "off" where there is a deadline.
    - `memory`: "least" chooses for each node the kernels that need the fewest bytes for constants and
      scratch, and so no Winograd; "fast" looks at their time alone.
    - `passes_off`: names of passes over the graph (`PASSES`), with commas between them, that are not run, to
      measure or to narrow down what they do. The passes without which there are no kernels always run.
    - `wait_type`: how `invoke` waits: "passive" sleeps until the device is done; "active" and "aggressive"
      ask it all the time, which takes a processor; "do_not_wait" returns from `CompiledModel`'s runs when
      they are started, and reading their outputs waits. Outputs on the host are always waited for.
    - `context`: the caller's own `pyopencl.Context`, of one device, whose buffers and events shall be used.
      None stands for one that all models of the process share.
    - `deadline_ms`: most milliseconds of a run, from its first launch on. The clock is looked at behind every
      eighth enqueue: a run that has exceeded it ends there with `DeadlineError`, and the model can run again.
      OpenCL cannot end a kernel that runs; persistent kernels, which hold many layers, are used only where
      `persistent` is "on", and no run is in the background. None: no deadline.
    - `cache_dir`: the folder of kernels, tuning results and packed weights. None stands for `FARM_CACHE_DIR`
      or the user's cache directory, "" keeps nothing.
    - `serialization_dir`: LiteRT's name of the same folder; only one of the two may be given.
    - `model_token`: a text that is this model's own, under which its packed weights are kept. None computes
      one from the model's bytes, once for each state of its file.
    - `max_delegated_partitions`: most partitions of a graph, the largest ones.
    - `min_nodes_per_partition`: fewest operators of a partition; smaller ones stay on the CPU.
    - `cost_aware_partitioning`: operators that would cost more in transfers and further runs than they save
      stay on the CPU, as far as shapes tell. A model that is taken whole always stays whole, and operators
      chosen by the two options that follow are all delegated.
    - `kept_plans`: how many plans of earlier input shapes stay ready, each with its memory on the device:
      a model whose input is resized back and forth is then planned and recorded once for each shape.
    - `first_delegate_node_index`, `last_delegate_node_index`: operators before the first and behind the last,
      counted as in the file, stay on the CPU; None: up to the end. They narrow down a faulty operator.
    - `excluded_operators`: names of operators, with commas between them, that stay on the CPU.
    - `conformance`: "kept" leaves operators to the CPU that a check of this device found to differ from the
      CPU path; "ignored" takes them all the same.
    - `require_full_delegation`: an operator that would stay on the CPU is an error.
    - `enable_quantization`: operators on quantised tensors are delegated too, and computed with the real
      numbers that their integers stand for, rounded as the integers are, or with the integers (`precision`).
    """

    backend: str = _option(
        "opencl",
        _one_of(*BACKENDS),
        Option(
            value_type=str,
            choices=INTERFACES,
            help="The interface through which the device is reached; by default its first, OpenCL if it has "
            "that.",
        ),
    )
    device: str | int | None = field(default=None, metadata={"parse": _device, "campaign": None})
    device_class: str = _choice(
        "auto",
        DEVICE_CLASSES,
        "Which kernels the device gets, for tests and plans; `auto` decides by its type.",
    )
    precision: str | None = _choice(
        None,
        PRECISIONS,
        "tf32: a GPU's matrix units multiply; fp16, bf16: weights are rounded, and with fp16 a GPU's "
        "activations in memory; int8: quantised models in integers; the default is fp32, and int8 for "
        "quantised models where the device gains by it.",
    )
    rounding: str = _choice(
        "reference",
        ROUNDINGS,
        "How integer products round: as LiteRT's reference kernels, or as XNNPACK, a level apart at times.",
    )
    precision_loss_allowed: bool | None = _flag(
        None, "False forbids tf32, fp16 and bf16; true chooses fp16 where no precision is given."
    )
    require_narrow_products: bool = _flag(
        False, "Whether a precision is refused in which the device does not multiply, or not faster."
    )
    weights: str = _choice(
        "stored",
        WEIGHTS,
        "Whether narrow weights stay in memory as the file has them; they are the same numbers.",
    )
    threads: int | None = _number(None, 1)
    tuning: str = _choice(
        "fast",
        TUNING_EFFORTS,
        "How thoroughly kernel variants are timed before the first run; `none` decides by rules.",
    )
    choices: str | None = _text(
        None, _choices, "What a result's tuning chose, to be used again: then nothing is timed."
    )
    persistent: str = _choice(
        "auto",
        PERSISTENT_MODES,
        "Whether a CPU device runs many layers in one kernel; `auto`: unless there is a deadline.",
    )
    memory: str = _choice(
        "fast", MEMORY, "`least` chooses the kernels that need the fewest bytes, whatever time they take."
    )
    passes_off: str = _text(
        "", _passes, "Passes over the graph that are not run, with commas between them, to see what they do."
    )
    wait_type: str = _option(
        "passive",
        _one_of(*WAIT_TYPES),
        Option(
            value_type=str,
            choices=("passive", "active", "do_not_wait"),
            default="passive",
            help="How a run waits for the device: asleep, or asking it all the time, which takes a CPU.",
        ),
    )
    deadline_ms: int | None = _number(
        None,
        1,
        MOST_MILLISECONDS,
        "The most milliseconds of a run, looked at between enqueues; by default there is no limit.",
    )
    context: Any = field(default=None, metadata={"parse": _context, "campaign": None})
    cache_dir: str | None = _text(None, _any_text)
    serialization_dir: str | None = _text(None, _word)
    model_token: str | None = _text(None, _word)
    max_delegated_partitions: int = _number(
        1, 1, MOST_PARTITIONS, "How many partitions of a model the delegate may run; the largest are kept."
    )
    min_nodes_per_partition: int = _number(
        1, 1, MOST_PARTITIONS, "The fewest operators of a partition; smaller ones stay on the CPU."
    )
    cost_aware_partitioning: bool = _flag(
        True, "Whether operators stay on the CPU that would cost more in transfers than they save."
    )
    kept_plans: int = _number(0, 0, MOST_PARTITIONS, "Plans of other input shapes: a campaign takes 0 alone.")
    first_delegate_node_index: int = _number(
        0, 0, MOST_OPERATORS, "The first operator, counted as in the file, that may be delegated."
    )
    last_delegate_node_index: int | None = _number(
        None, 0, MOST_OPERATORS, "The last operator that may be delegated; by default the model's last."
    )
    excluded_operators: str = _text("", _any_text)
    conformance: str = _choice("kept", CONFORMANCE)
    require_full_delegation: bool = _flag(
        False, "Whether a model with an operator that stays on the CPU is refused."
    )
    enable_quantization: bool = _flag(
        True, "Whether operators on quantised tensors are delegated: real numbers, or as precision says."
    )

    @property
    def skipped_passes(self) -> frozenset[str]:
        """The names in `passes_off`."""
        return frozenset(_names(self.passes_off))

    @property
    def excluded(self) -> list[str]:
        """The names in `excluded_operators`."""
        return _names(self.excluded_operators)

    @property
    def waits(self) -> bool:
        """Whether a run is waited for where it is started."""
        return self.wait_type != "do_not_wait"

    @property
    def weighs_costs(self) -> bool:
        """Whether costs decide: not within a window, whose operators somebody has chosen, nor where one
        on the CPU is an error, whose text names those alone that cannot be delegated.
        """
        chosen = self.first_delegate_node_index > 0 or self.last_delegate_node_index is not None
        return self.cost_aware_partitioning and not chosen and not self.require_full_delegation


def campaign_options() -> dict[str, Option]:
    """Return the options that a campaign may set, by name; LiteRT's names among them."""
    declared = {option.name: option.metadata["campaign"] for option in fields(Options)}
    allowed = {name: option for name, option in declared.items() if option is not None}
    return {"threads": threads_option(), VERSION: commit_option()} | allowed | dict(DECLARED)


def settled(given: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the options of one column of a campaign under the delegate's own names, or why they cannot be
    measured or do not go together.
    """
    release = {name: value for name, value in given.items() if name == VERSION}
    try:
        own = translated({name: value for name, value in given.items() if name not in release})
        options = parse_options(own)
    except DelegateError as error:
        return str(error).removeprefix("gpu delegate: ")
    if release and options.backend not in (None, "opencl"):
        return f"a version is measured through OpenCL alone; leave out backend {options.backend!r}"
    if not options.waits:
        return (
            "wait_type 'do_not_wait' leaves the waiting to who reads the outputs, which a measured run does "
            "at once; use passive, and `measure: {throughput: …}` for several runs in flight"
        )
    if options.kept_plans:
        return (
            "kept_plans keeps plans of other input shapes, and the inputs of a measured run have one; leave "
            "it out, and give each shape as a model of its own (`inputs: {NAME: {shape: …}}`)"
        )
    return own | release


def parse_options(given: Mapping[str, Any] | None) -> Options:
    """Options from a mapping of names to values (texts are accepted for numbers and flags).

    LiteRT's names (`litert_options.NAMES`) are accepted with LiteRT's values.

    Raises:
        DelegateError: an unknown name (with the nearest known one), a value that is not allowed, options that
            contradict each other, or a lossy precision where losses are forbidden.
    """
    known = {option.name: option.metadata["parse"] for option in fields(Options)}
    parsed: dict[str, Any] = {}
    for name, value in translated(given or {}).items():
        if name not in known:
            near = get_close_matches(str(name), known.keys() | NAMES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise DelegateError(f"gpu delegate: unknown option {name!r}; {hint}")
        if value is not None:
            parsed[name] = known[name](name, value)
    options = Options(**parsed)
    # `is False`, since None forbids nothing.
    if options.precision in _LOSSY and options.precision_loss_allowed is False:
        raise DelegateError(
            f"gpu delegate: precision {options.precision!r} rounds weights, which "
            "precision_loss_allowed=false forbids; leave out one of the two"
        )
    if options.deadline_ms is not None:
        options = _with_deadline(options)
    if options.context is not None and options.device is not None:
        raise DelegateError(
            "gpu delegate: the options 'context' and 'device' both name a device; give one of them"
        )
    if options.context is not None and options.backend != "opencl":
        raise DelegateError(
            f"gpu delegate: the option 'context' is for the backend opencl, not {options.backend}"
        )
    if options.wait_type != "passive" and options.backend != "opencl":
        raise DelegateError(
            f"gpu delegate: wait_type {options.wait_type!r} needs the backend opencl, not "
            f"{options.backend}; use passive there"
        )
    if options.cache_dir is not None and options.serialization_dir is not None:
        raise DelegateError(
            "gpu delegate: the options 'cache_dir' and 'serialization_dir' name one folder; give one of them"
        )
    return options


def _with_deadline(options: Options) -> Options:
    if not options.waits:
        raise DelegateError(
            "gpu delegate: deadline_ms ends runs that are waited for, and wait_type do_not_wait waits for "
            "none; leave out one of the two"
        )
    return replace(options, persistent="off") if options.persistent == "auto" else options
