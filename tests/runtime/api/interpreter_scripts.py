"""Scripts for the `Interpreter` that run with LiteRT's module and with ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.runtime.api.scripts import error_of

FLAGS = (
    "experimental_preserve_all_tensors",
    "experimental_disable_delegate_clustering",
    "experimental_default_delegate_latest_features",
    "experimental_compress_quantization_zero_points",
    "experimental_disable_delegate_node_fusion",
    "experimental_force_delegate_node_profiling",
)


def load(interpreter: ModuleType, model: bytes, **options: Any) -> Any:
    """Allocated, on the reference kernels unless `options` say otherwise."""
    chosen = {"experimental_op_resolver_type": interpreter.OpResolverType.BUILTIN_REF, **options}
    loaded = interpreter.Interpreter(model_content=model, **chosen)
    loaded.allocate_tensors()
    return loaded


def outputs_of(loaded: Any, feed: list[np.ndarray]) -> list[np.ndarray]:
    """One invocation."""
    for details, value in zip(loaded.get_input_details(), feed, strict=True):
        loaded.set_tensor(details["index"], value)
    loaded.invoke()
    return [loaded.get_tensor(d["index"]) for d in loaded.get_output_details()]


def every_way(interpreter: ModuleType, model: bytes, feed: list[np.ndarray]) -> dict[str, Any]:
    """Repeat the same run under each resolver, flag and number of threads."""
    kinds = {
        kind.name: outputs_of(load(interpreter, model, experimental_op_resolver_type=kind), feed)
        for kind in interpreter.OpResolverType
    }
    flags = {flag: outputs_of(load(interpreter, model, **{flag: True}), feed) for flag in FLAGS}
    threads = {n: outputs_of(load(interpreter, model, num_threads=n), feed) for n in (1, 2, 3, 4)}
    compressed = load(interpreter, model, experimental_compress_quantization_zero_points=True)
    return {
        "kinds": kinds,
        "flags": flags,
        "threads": threads,
        "compressed": compressed.experimental_compress_quantization_zero_points,
        "values": {kind.name: kind.value for kind in interpreter.OpResolverType},
    }


def operators(interpreter: ModuleType, model: bytes) -> list[dict[str, Any]]:
    """Return the details of each operator."""
    return load(interpreter, model)._get_ops_details()


def intermediates(interpreter: ModuleType, model: bytes, feed: list[np.ndarray]) -> list[np.ndarray]:
    """Every tensor of the file after a run that keeps them all."""
    loaded = load(interpreter, model, experimental_preserve_all_tensors=True)
    count = len(interpreter.Interpreter(model_content=model).get_tensor_details())
    outputs_of(loaded, feed)
    return [loaded.get_tensor(d["index"]) for d in loaded.get_tensor_details()[:count]]


def subgraphs(interpreter: ModuleType, model: bytes) -> dict[str, Any]:
    """Details of each subgraph, and what happens beyond them."""
    loaded = load(interpreter, model)
    count = loaded.num_subgraphs()
    return {
        "count": count,
        "details": [loaded.get_tensor_details(i) for i in range(count)],
        "beyond": error_of(lambda: loaded.get_tensor_details(count)),
        "tensor_beyond": error_of(lambda: loaded.get_tensor(0, count)),
    }


def signatures(interpreter: ModuleType, model: bytes, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    """Results of calls by signature, in order, on one interpreter."""
    loaded = interpreter.Interpreter(
        model_content=model, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    runners = {key: loaded.get_signature_runner(key) for key in loaded.get_signature_list()}
    found: list[Any] = [loaded.get_signature_list()]
    found += [runners[key](**values) for key, values in calls]
    found += [[runner.get_input_details(), runner.get_output_details()] for runner in runners.values()]
    return found


def signature_errors(
    interpreter: ModuleType, model: bytes, key: str, values: dict[str, Any]
) -> dict[str, str]:
    """Make calls that do not fit the signature."""
    loaded = interpreter.Interpreter(
        model_content=model, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    runner = loaded.get_signature_runner(key)
    first = next(iter(values))
    return {
        "none": error_of(runner),
        "other": error_of(lambda: runner(**{**values, first + "_": values[first]})),
        "renamed": error_of(lambda: runner(**{("other" if n == first else n): v for n, v in values.items()})),
        "double": error_of(lambda: runner(**{**values, first: np.zeros(values[first].shape)})),
        "key": error_of(lambda: loaded.get_signature_runner("absent")),
        "good": error_of(lambda: runner(**values)),
    }


def resizes(interpreter: ModuleType, model: bytes, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Strict and lenient resizes of input 0: kind of error, details, result."""
    loaded = load(interpreter, model)
    index = loaded.get_input_details()[0]["index"]
    found: list[Any] = []
    for shape in shapes:
        for strict in (True, False):
            found.append(error_of(lambda s=shape, f=strict: loaded.resize_tensor_input(index, s, strict=f)))
            found.append(error_of(loaded.invoke))
            found.append(error_of(loaded.allocate_tensors))
            found.append([d["shape"].tolist() for d in loaded.get_input_details()])
            found.append([d["shape_signature"].tolist() for d in loaded.get_input_details()])
    return found


def views(interpreter: ModuleType, model: bytes) -> list[Any]:
    """Return what a held view forbids, and that functions alone forbid nothing."""
    loaded = load(interpreter, model)
    index = loaded.get_input_details()[0]["index"]
    function = loaded.tensor(index)
    view = function()
    zeros = np.zeros(view.shape, view.dtype)
    calls = {
        "invoke": loaded.invoke,
        "allocate": loaded.allocate_tensors,
        "resize": lambda: loaded.resize_tensor_input(index, zeros.shape),
        "get": lambda: loaded.get_tensor(index),
        "set": lambda: loaded.set_tensor(index, zeros),
        "details": loaded.get_tensor_details,
    }
    held = {name: error_of(call) for name, call in calls.items()}
    view[...] = 3
    kept = loaded.get_tensor(index)
    del view, calls
    return [held, kept, error_of(loaded.invoke), function()[...].copy()]


BAD_INDICES = (-1, 10**6, 1 << 31, "x", 1.5, None)


def misuse(interpreter: ModuleType, model: bytes) -> dict[str, str]:
    """Return the errors of calls too early, indices that are none, and unfit shapes and settings."""
    reference = {"experimental_op_resolver_type": interpreter.OpResolverType.BUILTIN_REF}
    loaded = interpreter.Interpreter(model_content=model, **reference)
    details = loaded.get_input_details()[0]
    index, shape = details["index"], tuple(details["shape"].tolist())
    zeros = np.zeros(shape, np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "early get": lambda: loaded.get_tensor(index),
        "early set": lambda: loaded.set_tensor(index, zeros),
        "early view": loaded.tensor(index),
        "early invoke": loaded.invoke,
        "early reset": loaded.reset_all_variables,
        "runner without a key": loaded.get_signature_runner,
        "runner of a number": lambda: loaded.get_signature_runner(3),
        "allocate": loaded.allocate_tensors,
        "allocate again": loaded.allocate_tensors,
    }
    for bad in BAD_INDICES:
        calls |= {
            f"get {bad}": lambda bad=bad: loaded.get_tensor(bad),
            f"set {bad}": lambda bad=bad: loaded.set_tensor(bad, zeros),
            f"view {bad}": lambda bad=bad: loaded.tensor(bad)(),
            f"resize {bad}": lambda bad=bad: loaded.resize_tensor_input(bad, shape),
        }
    calls |= {
        f"set {name}": lambda value=value: loaded.set_tensor(index, value)
        for name, value in {
            "a list": zeros.tolist(),
            "a number": 1.0,
            "half precision": zeros.astype(np.float16),
            "Fortran order": np.asfortranarray(zeros),
            "big-endian": zeros.astype(">f4"),
            "objects": zeros.astype(object),
            "text": np.array(["a"]),
            "nothing": None,
        }.items()
    }
    calls |= {
        f"resize to {name}": lambda size=size: loaded.resize_tensor_input(index, size)
        for name, size in {
            "a tuple": shape,
            "floats": [1.0, *shape[1:]],
            "a negative size": [-1, *shape[1:]],
            "a matrix": np.array([shape]),
            "a scalar": [],
        }.items()
    }
    calls["allocate what does not fit"] = loaded.allocate_tensors
    calls |= {
        f"{count!r} threads": lambda count=count: interpreter.Interpreter(
            model_content=model, num_threads=count
        )
        for count in (0, -1, 1.0, "1", True, None)
    }
    calls |= {
        f"path {path!r}": lambda path=path: interpreter.Interpreter(model_path=path)
        for path in (5, b"/nonexistent", Path("/nonexistent"), "")
    }
    calls["unknown argument"] = lambda: interpreter.Interpreter(model_content=model, nonsense=1)
    calls["no resolver"] = lambda: interpreter.Interpreter(
        model_content=model, experimental_op_resolver_type=None
    )
    return {name: error_of(call) for name, call in calls.items()}


def full_signatures(interpreter: ModuleType, model: bytes) -> list[Any]:
    """Return the results of private methods that scripts use all the same."""
    loaded = interpreter.Interpreter(model_content=model)
    return [
        loaded._get_full_signature_list(),
        loaded._get_op_details(1),
        loaded._get_tensor_details(0, 1),
    ]
