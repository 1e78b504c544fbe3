"""Scripts that run against an `Interpreter` class: once with LiteRT's in its worker, once with ours."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np


def details(litert: Any, model: bytes, shape: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Everything that can be asked of a model."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    first = interpreter.get_input_details()
    if shape is not None:
        interpreter.resize_tensor_input(first[0]["index"], shape)
        resized = interpreter.get_input_details()
    else:
        resized = first
    count = len(interpreter.get_tensor_details())  # LiteRT appends its temporaries later
    interpreter.allocate_tensors()
    return {
        "first": first,
        "resized": resized,
        "inputs": interpreter.get_input_details(),
        "outputs": interpreter.get_output_details(),
        "tensors": interpreter.get_tensor_details()[:count],
        "signatures": interpreter.get_signature_list(),
        "subgraphs": interpreter.num_subgraphs(),
    }


def signature_details(litert: Any, model: bytes) -> list[dict[str, Any]]:
    runner = litert.Interpreter(model_content=model, **_reference(litert)).get_signature_runner()
    return [runner.get_input_details(), runner.get_output_details()]


def run_signature(litert: Any, model: bytes, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return litert.Interpreter(model_content=model, **_reference(litert)).get_signature_runner()(**values)


def run_by_views(litert: Any, model: bytes, value: np.ndarray) -> list[Any]:
    """`tensor()` gives writable views, and a held view blocks what would move the memory."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    interpreter.allocate_tensors()
    source = interpreter.tensor(interpreter.get_input_details()[0]["index"])
    result = interpreter.tensor(interpreter.get_output_details()[0]["index"])
    source()[:] = value
    interpreter.invoke()
    found = [np.array(result())]
    source().fill(2.0)
    interpreter.invoke()
    found.append(np.array(result()))
    view = source()
    blocked = [_error(interpreter.invoke), _error(interpreter.allocate_tensors)]
    part = view[0]
    del view
    blocked.append(_error(interpreter.invoke))
    del part
    interpreter.invoke()
    return [*found, blocked]


def errors(litert: Any, model: bytes) -> dict[str, Any]:
    """Kind and text of what goes wrong."""
    make = litert.Interpreter
    interpreter = make(model_content=model, num_threads=1, **_reference(litert))
    index = interpreter.get_input_details()[0]["index"]
    shape = interpreter.get_input_details()[0]["shape"]
    good = np.zeros(shape, np.float32)
    found = {
        "no_model": _error(make),
        "two_models": _error(lambda: make(model_path="x", model_content=b"x")),
        "threads_zero": _error(lambda: make(model_content=model, num_threads=0)),
        "threads_text": _error(lambda: make(model_content=model, num_threads="1")),
        "resolver": _error(lambda: make(model_content=model, experimental_op_resolver_type=7)),
        "no_file": _error(lambda: make(model_path="/nonexistent.tflite"))[0],
        "not_a_model": _error(lambda: make(model_content=b"0123456789"))[0],
        "invoke_early": _error(interpreter.invoke),
        "get_early": _error(lambda: interpreter.get_tensor(index)),
        "view_early": _error(interpreter.tensor(index)),
        "set_early": _error(lambda: interpreter.set_tensor(index, good)),
        "subgraph": _error(lambda: interpreter.get_tensor_details(5)),
        "signature_none": _error(interpreter.get_signature_runner),
        "signature_key": _error(lambda: interpreter.get_signature_runner("x")),
    }
    interpreter.allocate_tensors()
    found |= {
        "set_type": _error(lambda: interpreter.set_tensor(index, good.astype(np.int32))),
        "set_double": _error(lambda: interpreter.set_tensor(index, good.astype(np.float64))),
        "set_shape": _error(lambda: interpreter.set_tensor(index, good[:, :-1])),
        "set_rank": _error(lambda: interpreter.set_tensor(index, good[0])),
        "set_index": _error(lambda: interpreter.set_tensor(9999, good))[0],
        "get_index": _error(lambda: interpreter.get_tensor(9999))[0],
        "get_negative": _error(lambda: interpreter.get_tensor(-1))[0],
        "resize_strict": _error(lambda: interpreter.resize_tensor_input(index, [7, *shape[1:]], strict=True))[
            0
        ],
        "resize_negative": _error(lambda: interpreter.resize_tensor_input(index, [-1, *shape[1:]]))[0],
    }
    interpreter.resize_tensor_input(index, [2, *shape[1:]])
    found["invoke_resized"] = _error(interpreter.invoke)[0]
    found["get_resized"] = _error(lambda: interpreter.get_tensor(index))
    return found


def crash(litert: Any) -> None:
    """End the worker as a model that breaks LiteRT does."""
    os.kill(os.getpid(), signal.SIGSEGV)


def _error(call: Callable[[], Any]) -> list[str]:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the kind of error is what is compared
        kind = next(k.__name__ for k in type(error).__mro__ if k in (ValueError, RuntimeError, TypeError))
        return [kind, " ".join(str(error).split())]
    return ["nothing", ""]


def _reference(litert: Any) -> dict[str, Any]:
    return {"experimental_op_resolver_type": litert.OpResolverType.BUILTIN_REF}


def invoke_each(
    litert: Any, model: bytes, feeds: list[list[np.ndarray]], resolver: str = "BUILTIN_REF"
) -> list[list[np.ndarray]]:
    """One interpreter, invoked once with each list of inputs; its outputs each time."""
    chosen = litert.OpResolverType[resolver]
    interpreter = litert.Interpreter(model_content=model, experimental_op_resolver_type=chosen)
    found = []
    interpreter.allocate_tensors()
    for feed in feeds:
        for details, value in zip(interpreter.get_input_details(), feed, strict=True):
            if tuple(details["shape"]) != value.shape:
                interpreter.resize_tensor_input(details["index"], value.shape)
                interpreter.allocate_tensors()
        for details, value in zip(interpreter.get_input_details(), feed, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        found.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return found


def put_and_get(litert: Any, model: bytes, values: list[np.ndarray]) -> list[np.ndarray]:
    """Return the results of signature `get` after each `put`."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    put, get = (interpreter.get_signature_runner(key) for key in ("put", "get"))
    found = []
    for value in values:
        put(x=value)
        found.append(get()["value"])
    return found


def put_and_get_types(litert: Any, model: bytes, values: list[np.ndarray]) -> list[np.ndarray]:
    """Return the results of the `get_TYPE` of each value after its `put_TYPE`."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    found = []
    for value in values:
        interpreter.get_signature_runner(f"put_{value.dtype.name}")(x=value)
        found.append(interpreter.get_signature_runner(f"get_{value.dtype.name}")()["value"])
    return found


def run_and_reset(litert: Any, model: bytes, value: np.ndarray) -> list[np.ndarray]:
    """Return the outputs of two invocations, and of one more after the variables were reset."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
    found = []
    for reset in (False, False, True):
        if reset:
            interpreter.reset_all_variables()
        interpreter.invoke()
        found.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    return found


def read_tensor(litert: Any, model: bytes, index: int) -> tuple[str, np.ndarray]:
    """Return the dtype that the details name, and the values."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    interpreter.allocate_tensors()
    dtypes = {d["index"]: d["dtype"].__name__ for d in interpreter.get_tensor_details()}
    return dtypes[index], interpreter.get_tensor(index)


def set_and_read(
    litert: Any, model: bytes, index: int, good: np.ndarray, bad: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Return the tensor after it was set, and the errors for a value of a wrong type."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    interpreter.allocate_tensors()
    interpreter.set_tensor(index, good)
    return interpreter.get_tensor(index), _error(lambda: interpreter.set_tensor(index, bad))


def shapes_around_a_run(litert: Any, model: bytes, feed: list[np.ndarray]) -> list[Any]:
    """Shapes and readability of the outputs: allocated, and after a run."""
    interpreter = litert.Interpreter(model_content=model, **_reference(litert))
    interpreter.allocate_tensors()
    outputs = [d["index"] for d in interpreter.get_output_details()]
    found: list[Any] = [[d["shape"].tolist() for d in interpreter.get_output_details()]]
    found.append([_error(lambda i=i: interpreter.get_tensor(i)) for i in outputs])
    for details, value in zip(interpreter.get_input_details(), feed, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    found.append([d["shape"].tolist() for d in interpreter.get_output_details()])
    found.append([interpreter.get_tensor(i) for i in outputs])
    return found
