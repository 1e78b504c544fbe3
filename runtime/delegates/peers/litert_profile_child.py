"""The process that profiles a model with LiteRT's own profiler, which LiteRT's Python packages do not offer.

It is in the C API of the library that `ai_edge_litert` brings (its `litert/c`). Arguments: the library, the
model, an `.npz` file with the inputs by index of their tensor, threads, rounds. The standard output gets a
line of JSON: `{"runs": [[[type, name, us, node, subgraph], ...], ...]}`, the events of each run, or
`{"why": ...}`.
"""

import ctypes
import json
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Final

import numpy as np

_CPU: Final = 1
"""`kLiteRtHwAcceleratorCpu`."""

_FOR_WRITING: Final = 1
"""`kLiteRtTensorBufferLockModeWrite`."""

_TENSOR_TYPE_BYTES: Final = 1024
"""Room for a `LiteRtRankedTensorType` (type, rank, eight extents and strides), which is handed on unread."""


class _RefusedError(Exception):
    """A call of LiteRT's C API failed."""


class _Event(ctypes.Structure):
    """`ProfiledEventData`."""

    _fields_ = (
        ("tag", c_char_p),
        ("type", c_int),
        ("start_us", c_uint64),
        ("elapsed_us", c_uint64),
        ("memory", c_size_t * 6),
        ("node", c_uint64),
        ("subgraph", c_uint64),
        ("source", c_int),
    )


class _Api:
    """The library; each function returns a status of 0, or `_RefusedError` is raised."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __call__(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, f"LiteRt{name}")(*arguments):
            raise _RefusedError(f"LiteRt{name} returned the status {status}")

    def made(self, name: str, *arguments: object) -> c_void_p:
        """Return the handle that a function writes to its last argument."""
        handle = c_void_p()
        self(name, *arguments, byref(handle))
        return handle


def _profile(
    api: _Api, path: str, inputs: dict[int, bytes], threads: int, rounds: int
) -> list[list[tuple[int, str, int, int, int]]]:
    """Return the events of `rounds` runs, after one that is not counted. The process's end frees all."""
    environment = api.made("CreateEnvironment", 0, None)
    model = api.made("CreateModelFromFile", environment, path.encode())
    options = api.made("CreateOptions")
    api("SetOptionsHardwareAccelerators", options, _CPU)
    _add(api, options, b"runtime_options_string", b"enable_profiling = true\n")
    _add(api, options, b"xnnpack", b"num_threads = %d\n" % threads)
    compiled = api.made("CreateCompiledModel", environment, model, options)
    profiler = api.made("CompiledModelGetProfiler", compiled)
    # A plain int would be passed as a C int, which is narrower than size_t.
    signature = api.made("GetModelSignature", model, c_size_t(0))
    places = [_buffers(api, environment, compiled, signature, kind, inputs) for kind in ("Input", "Output")]
    arguments = [part for place in places for part in (c_size_t(len(place)), place)]
    runs = []
    for _ in range(rounds + 1):
        api("ResetProfiler", profiler)
        api("StartProfiler", profiler)
        api("RunCompiledModel", compiled, c_size_t(0), *arguments)
        api("StopProfiler", profiler)
        count = c_int()
        api("GetNumProfilerEvents", profiler, byref(count))
        events = (_Event * count.value)()
        api("GetProfilerEvents", profiler, count, events)
        runs.append([(e.type, e.tag.decode(), e.elapsed_us, e.node, e.subgraph) for e in events])
    return runs[1:]


def _add(api: _Api, options: c_void_p, kind: bytes, text: bytes) -> None:
    c = ctypes.CDLL(None)
    c.strdup.restype = c_void_p
    # LiteRT frees the text by the function that it is given, so C must have allocated it.
    copy = c_void_p(c.strdup(text))
    api("AddOpaqueOptions", options, api.made("CreateOpaqueOptions", kind, copy, c.free))


def _buffers(
    api: _Api,
    environment: c_void_p,
    compiled: c_void_p,
    signature: c_void_p,
    kind: str,
    inputs: dict[int, bytes],
) -> ctypes.Array[c_void_p]:
    """Make the buffers of the signature's inputs, filled, or of its outputs."""
    count = c_size_t()
    api(f"GetNumSignature{kind}s", signature, byref(count))
    found = (c_void_p * count.value)()
    for place in range(count.value):
        tensor = api.made(f"GetSignature{kind}TensorByIndex", signature, c_size_t(place))
        form = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
        api("GetRankedTensorType", tensor, form)
        needs = api.made(f"GetCompiledModel{kind}BufferRequirements", compiled, c_size_t(0), c_size_t(place))
        buffer = api.made("CreateManagedTensorBufferFromRequirements", environment, form, needs)
        found[place] = buffer.value
        if kind == "Input":
            index = ctypes.c_uint32()
            api("GetTensorIndex", tensor, byref(index))
            _fill(api, buffer, inputs[index.value])
    return found


def _fill(api: _Api, buffer: c_void_p, values: bytes) -> None:
    size = c_size_t()
    api("GetTensorBufferPackedSize", buffer, byref(size))
    if size.value != len(values):
        raise _RefusedError("it runs the shapes that the file declares, and these inputs have others")
    address = c_void_p()
    api("LockTensorBuffer", buffer, byref(address), _FOR_WRITING)
    ctypes.memmove(address, values, len(values))
    api("UnlockTensorBuffer", buffer)


def _main(library: str, model: str, inputs: str, threads: str, rounds: str) -> None:
    with np.load(inputs, allow_pickle=False) as arrays:
        given = {int(index): arrays[index].tobytes() for index in arrays.files}
    try:
        answer: dict[str, object] = {"runs": _profile(_Api(library), model, given, int(threads), int(rounds))}
    # ctypes raises OSError for a library that does not load, AttributeError for a function that it lacks.
    except (_RefusedError, OSError, AttributeError) as error:
        answer = {"why": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main(*sys.argv[1:])
