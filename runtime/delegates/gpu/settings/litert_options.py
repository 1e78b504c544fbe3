"""Translates LiteRT's names of the delegate's options: those of `TfLiteGpuDelegateOptionsV2`, and of iOS.

Each has its effect here, by one of our own options, or is refused with the reason.
"""

from collections.abc import Callable, Mapping
from typing import Any

from runtime.delegates.descriptor import Option
from runtime.errors import DelegateError

_PREFERENCES = {"FAST_SINGLE_ANSWER": "none", "SUSTAINED_SPEED": "exhaustive", "BALANCED": "fast"}
"""`TfLiteGpuInferenceUsage`, in the order of its numbers → the effort of tuning. LiteRT too times nothing for
a fast single answer."""

_PRIORITIES = ("AUTO", "MAX_PRECISION", "MIN_LATENCY", "MIN_MEMORY_USAGE")
"""`TfLiteGpuInferencePriority`, in the order of its numbers."""

_PRIORITY_NAMES = ("inference_priority1", "inference_priority2", "inference_priority3")

_GPU_BACKENDS = {"cl": "opencl", "gl": "opengl"}
"""`gpu_backend` of LiteRT's tools → the option `backend`."""

_FLAGS = {"ENABLE_QUANT": 1, "CL_ONLY": 2, "GL_ONLY": 4, "ENABLE_SERIALIZATION": 8}
"""The bits of `TfLiteGpuExperimentalFlags`, as LiteRT's header has them."""

_PREFIXES = ("TFLITE_GPU_INFERENCE_PREFERENCE_", "TFLITE_GPU_INFERENCE_PRIORITY_")


def not_allowed(name: str, rule: str, value: Any) -> DelegateError:
    """Return the error of a value that is not what the rule of its option says."""
    return DelegateError(f"gpu delegate: option {name!r} must be {rule}; got {value!r}")


def translated(given: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the options to our own names.

    Raises `DelegateError` for a value that LiteRT does not know, for what this delegate cannot do, and for
    two options that say different things.
    """
    found = {name: value for name, value in given.items() if name not in NAMES}
    sources = {name: name for name in found}

    def put(source: str, name: str, value: Any) -> None:
        # Compared as texts, since True and "true" are the same choice.
        if name in found and str(found[name]).lower() != str(value).lower():
            raise DelegateError(
                f"gpu delegate: options {sources[name]!r} and {source!r} contradict each other: {name} would "
                f"be {found[name]!r} and {value!r}; give one of them"
            )
        found[name], sources[name] = value, source

    for name, translate in _TRANSLATIONS.items():
        if given.get(name) is not None:
            for own, value in translate(name, given[name]).items():
                put(name, own, value)
    if any(given.get(name) is not None for name in _PRIORITY_NAMES):
        for own, value in _prioritised(given).items():
            put("inference_priority1", own, value)
    if given.get("experimental_flags") is not None:
        for own, value in _flagged(given).items():
            put("experimental_flags", own, value)
    return found


def _number(name: str, value: Any, names: tuple[str, ...]) -> int:
    """Return the number of a member of one of LiteRT's enumerations, given as its number or name."""
    text = str(value).upper()
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    known = {str(number): number for number in range(len(names))} | {n: i for i, n in enumerate(names)}
    if isinstance(value, bool) or text not in known:
        allowed = ", ".join(f"{number} ({member})" for number, member in enumerate(names))
        raise not_allowed(name, f"one of {allowed}", value)
    return known[text]


def _loss(_: str, value: Any) -> dict[str, Any]:
    known = {"0": False, "1": True}
    # -1 is LiteRT's value for an option that is not set.
    return {} if str(value) == "-1" else {"precision_loss_allowed": known.get(str(value), value)}


def _preference(name: str, value: Any) -> dict[str, Any]:
    members = tuple(_PREFERENCES)
    return {"tuning": _PREFERENCES[members[_number(name, value, members)]]}


def _backend(name: str, value: Any) -> dict[str, Any]:
    if value not in _GPU_BACKENDS:
        raise not_allowed(name, "cl or gl", value)
    return {"backend": _GPU_BACKENDS[value]}


def _kept(name: str, value: Any) -> dict[str, Any]:
    if value not in ("on", "off"):
        raise not_allowed(name, "on or off", value)
    return {} if value == "on" else {"cache_dir": ""}


def _one_loop(name: str, value: Any) -> dict[str, Any]:
    if str(value) != "1":
        raise DelegateError(
            f"gpu delegate: option {name!r} must be 1, got {value!r}: whoever measures repeats whole runs"
        )
    return {}


def _prioritised(given: Mapping[str, Any]) -> dict[str, Any]:
    """Combine the three priorities; those behind the first AUTO are filled in, as LiteRT does."""
    defaults = (1, 0, 0)
    numbers = [
        _number(name, default if given.get(name) is None else given[name], _PRIORITIES)
        for name, default in zip(_PRIORITY_NAMES, defaults, strict=True)
    ]
    chosen = [_PRIORITIES[number] for number in numbers if number]
    # A stable sort that moves only AUTO, 0, to the end changes nothing where AUTO is last already.
    if numbers[0] == 0 or numbers != sorted(numbers, key=lambda number: number == 0):
        raise DelegateError(
            f"gpu delegate: {_shown(numbers)}: AUTO may only stand behind all other priorities, not first"
        )
    if len(set(chosen)) < len(chosen):
        raise DelegateError(f"gpu delegate: {_shown(numbers)}: each priority may be given once")
    order = [*chosen, *(name for name in _PRIORITIES[1:] if name not in chosen)]
    memory_first = order.index("MIN_MEMORY_USAGE") < order.index("MIN_LATENCY")
    return {
        "precision_loss_allowed": order[0] != "MAX_PRECISION",
        "memory": "least" if memory_first else "fast",
    }


def _shown(numbers: list[int]) -> str:
    return "inference priorities " + ", ".join(_PRIORITIES[number] for number in numbers)


def _flagged(given: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the bits of `experimental_flags`: the platform, quantised models, and what is kept on disk."""
    name, value = "experimental_flags", given["experimental_flags"]
    most = sum(_FLAGS.values())
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) > most:
        bits = ", ".join(f"{bit} ({flag})" for flag, bit in _FLAGS.items())
        raise not_allowed(name, f"a sum of {bits}", value)
    flags = int(value)
    if flags & _FLAGS["GL_ONLY"]:
        raise DelegateError(
            f"gpu delegate: option {name!r}: GL_ONLY (4) asks for OpenGL; use backend 'opengl' for it"
        )
    named = [key for key in ("serialization_dir", "model_token") if given.get(key) is not None]
    if flags & _FLAGS["ENABLE_SERIALIZATION"] and len(named) < 2:  # both of them
        raise DelegateError(
            f"gpu delegate: option {name!r}: ENABLE_SERIALIZATION (8) needs serialization_dir and model_token"
        )
    if named and not flags & _FLAGS["ENABLE_SERIALIZATION"]:
        raise DelegateError(
            f"gpu delegate: option {name!r}: {named[0]} needs ENABLE_SERIALIZATION (8) there; or leave out "
            f"{name!r}"
        )
    return {"enable_quantization": bool(flags & _FLAGS["ENABLE_QUANT"])}


_TRANSLATIONS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "is_precision_loss_allowed": _loss,
    "allow_precision_loss": _loss,
    "inference_preference": _preference,
    "gpu_invoke_loop_times": _one_loop,
    "gpu_backend": _backend,
    "quantized": lambda _, value: {"enable_quantization": value},
    "serialization": _kept,
}

DECLARED: Mapping[str, Option] = {
    "is_precision_loss_allowed": Option(
        value_type=int, minimum=-1, maximum=1, help="`precision_loss_allowed`, as LiteRT's options have it."
    ),
    "allow_precision_loss": Option(value_type=bool, help="`precision_loss_allowed`, as on iOS."),
    "inference_preference": Option(
        value_type=str, help="LiteRT's FAST_SINGLE_ANSWER, SUSTAINED_SPEED or BALANCED, as `tuning`."
    ),
    **{
        name: Option(value_type=str, help="LiteRT's MAX_PRECISION, MIN_LATENCY, MIN_MEMORY_USAGE or AUTO.")
        for name in _PRIORITY_NAMES
    },
    "gpu_backend": Option(
        value_type=str,
        choices=tuple(_GPU_BACKENDS),
        help="`backend`, as in LiteRT's tools: OpenCL or OpenGL.",
    ),
    "quantized": Option(value_type=bool, help="`enable_quantization`."),
    "serialization": Option(
        value_type=str,
        choices=("on", "off"),
        help="Whether later starts find kernels, packed weights and plans of the first one.",
    ),
}
"""LiteRT's names and short ones that a campaign may use besides our own; a column is kept by our own."""

NAMES = frozenset({*_TRANSLATIONS, *_PRIORITY_NAMES, "experimental_flags"})
"""All names that are LiteRT's alone. Others are the same here, such as `max_delegated_partitions`."""
