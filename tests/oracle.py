"""LiteRT as the oracle, in a worker process of its own: a model that kills it is a reported case.

    from tests.oracle import run_litert
    outputs = run_litert(model_bytes, [x])                         # BUILTIN_REF, one thread, list of arrays
    outputs = run_litert(model_bytes, [x], resolver="BUILTIN")     # with XNNPACK
    details = call_in_litert("tests.runtime.scripts:details", model_bytes)
    outputs = answer_of_litert("tests.models.comparison:run_rows_in_litert", model_bytes, rows, "BUILTIN")

`call_in_litert("module:function", *args)` imports the module in the worker and calls
`function(ai_edge_litert.interpreter, *args)`; arguments and result travel as pickles. LiteRT's own
exceptions come back as `LiteRtError` (class name and text), the worker's death as `OracleDiedError`. Want of
memory, of a file or of a module is raised as it is: it is no answer of LiteRT. `answer_of_litert` asks only
what no earlier run of the suite has a result for; so do the two that run a model.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.needs import REPOSITORY

TIMEOUT_S = 300
NOT_RUN = "examples that LiteRT did not run"
"""The property of a test's report that the end of the run prints, whichever process ran the test."""
keeps_answers = True
"""Whether results are kept for other runs; not in the exhaustive suite, which asks for too many."""
_HEADER = struct.Struct("<Q")


class OracleDiedError(Exception):
    """The worker ended while it ran a case; the text names the signal or exit status.

    `status`: as of `subprocess`, negative for a signal.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class LiteRtError(Exception):
    """LiteRT raised; `kind` is the class name of its exception."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


def run_litert(
    model: bytes, inputs: Sequence[np.ndarray], resolver: str = "BUILTIN_REF", threads: int = 1
) -> list[np.ndarray]:
    """Return the outputs of one invocation; inputs are resized to the arrays' shapes if they differ."""
    return answer_of_litert("tests.oracle:run_model", bytes(model), list(inputs), resolver, threads)


def run_litert_tensors(model: bytes, inputs: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Every readable tensor of the primary subgraph after one invocation of the reference kernels."""
    return answer_of_litert("tests.oracle:run_tensors", bytes(model), list(inputs))


def answer_of_litert(function: str, *args: Any) -> Any:
    """Return what `call_in_litert` does, for a function of `args` and LiteRT alone: its result is
    kept for other runs of the suite.
    """
    if not keeps_answers:
        return call_in_litert(function, *args)
    from tests.services.kept_answers import kept_answer  # the worker needs none of it

    return _result(kept_answer(function, args, lambda: _ask(function, args)))


def call_in_litert(function: str, *args: Any) -> Any:
    """Call `module:function` in the worker with LiteRT's interpreter module and `args`."""
    return _result(_ask(function, args))


def _ask(function: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    if not _workers or not _workers[-1].alive():
        _workers[:] = [_Worker()]
    return _workers[-1].ask(function, args)


def _result(answer: tuple[bool, Any]) -> Any:
    is_right, value = answer
    if is_right:
        return value
    if isinstance(value, Exception):
        raise value
    raise LiteRtError(*value)


class _Worker:
    def __init__(self) -> None:
        request_read, self._request = os.pipe()
        self._response, response_write = os.pipe()
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle", str(request_read), str(response_write)],
            pass_fds=(request_read, response_write),
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(request_read)
        os.close(response_write)
        atexit.register(self.close)

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive():
            self._process.kill()
            self._process.wait()
        for descriptor in (self._request, self._response):
            if descriptor >= 0:
                os.close(descriptor)
        self._request = self._response = -1
        atexit.unregister(self.close)

    def ask(self, function: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
        """Return whether the function returned, and what; or the class and text of LiteRT's error, or an
        exception that is not LiteRT's.
        """
        try:
            _send(self._request, (function, args))
            answer: tuple[bool, Any] = _receive(self._response)
        except (EOFError, BrokenPipeError):
            status = self._process.wait()
            self.close()
            name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            raise OracleDiedError(f"{function}: the LiteRT worker ended with {name}", status) from None
        return answer


_workers: list[_Worker] = []


def _send(descriptor: int, value: Any) -> None:
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    view = memoryview(_HEADER.pack(len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _receive(descriptor: int) -> Any:
    return pickle.loads(_read(descriptor, _HEADER.unpack(_read(descriptor, _HEADER.size))[0]))


def _read(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = os.read(descriptor, min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


# ------------------------------------------------------------------ in the worker


def run_model(
    litert: Any, model: bytes, inputs: list[np.ndarray], resolver: str, threads: int
) -> list[np.ndarray]:
    interpreter = _loaded(litert, model, inputs, resolver, threads=threads)
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def run_tensors(litert: Any, model: bytes, inputs: list[np.ndarray]) -> dict[int, np.ndarray]:
    interpreter = _loaded(litert, model, inputs, "BUILTIN_REF", preserve=True)
    values = {}
    for details in interpreter.get_tensor_details():
        try:
            values[details["index"]] = interpreter.get_tensor(details["index"])
        except ValueError:
            continue
    return values


def _loaded(
    litert: Any,
    model: bytes,
    inputs: list[np.ndarray],
    resolver: str,
    threads: int = 1,
    preserve: bool = False,
) -> Any:
    interpreter = litert.Interpreter(
        model_content=model,
        num_threads=threads,
        experimental_op_resolver_type=litert.OpResolverType[resolver],
        experimental_preserve_all_tensors=preserve,
    )
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(details["shape"]) != value.shape:
            interpreter.resize_tensor_input(details["index"], value.shape)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return interpreter


def _serve(requests: int, responses: int) -> None:
    signal.alarm(0)
    from ai_edge_litert import interpreter as litert

    while True:
        try:
            function, args = _receive(requests)
        except EOFError:
            return
        signal.alarm(TIMEOUT_S)
        try:
            module, name = function.split(":")
            answer = (True, getattr(importlib.import_module(module), name)(litert, *args))
        except (MemoryError, OSError, ImportError) as error:
            answer = (False, error)
        except Exception as error:  # noqa: BLE001 - whatever LiteRT raises is the answer
            answer = (False, (type(error).__name__, str(error) or traceback.format_exc()))
        signal.alarm(0)
        _send(responses, answer)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
