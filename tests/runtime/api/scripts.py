"""Scripts for LiteRT Next's Python API; each runs with LiteRT's package and with ours.

`interpreter` is the package's `interpreter` module, from which the others are imported: a script moves by
changing the name of the package.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


def _import(interpreter: ModuleType, name: str) -> Any:
    return import_module(f"{interpreter.__name__.rpartition('.')[0]}.{name}")


def error_of(call: Callable[[], Any]) -> str:
    """Kind of what goes wrong, as a caller catches it."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the kind of error is what is compared
        return next(k.__name__ for k in type(error).__mro__ if k in (ValueError, RuntimeError, TypeError))
    return "nothing"


def describe(interpreter: ModuleType, model: bytes) -> dict[str, Any]:
    """Signatures, details and requirements."""
    compiled = _import(interpreter, "compiled_model").CompiledModel.from_buffer(model)
    keys = list(compiled.get_signature_list())
    return {
        "list": compiled.get_signature_list(),
        "count": compiled.get_num_signatures(),
        "by_index": [compiled.get_signature_by_index(i) for i in range(len(keys))],
        "indices": [compiled.get_signature_index(k) for k in (*keys, "absent")],
        "inputs": [compiled.get_input_tensor_details(k) for k in keys],
        "outputs": [compiled.get_output_tensor_details(k) for k in keys],
        "input_requirements": compiled.get_input_buffer_requirements(0),
        "output_requirements": compiled.get_output_buffer_requirements(0, 0),
        "accelerated": compiled.is_fully_accelerated(),
        "buffers": [b.get_tensor_details() for b in compiled.create_input_buffers(0)],
    }


def run(interpreter: ModuleType, model: bytes, values: dict[str, np.ndarray]) -> dict[str, Any]:
    """By index and by name."""
    with _import(interpreter, "compiled_model").CompiledModel.from_buffer(model) as compiled:
        signature = compiled.get_signature_by_index(0)
        key = signature["key"]
        inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
        for name, buffer in zip(signature["inputs"], inputs, strict=True):
            buffer.write(values[name])
        compiled.run_by_index(0, inputs, outputs)
        found = {"by_index": [_read(b) for b in outputs]}
        named_in = {n: compiled.create_input_buffer_by_name(key, n) for n in signature["inputs"]}
        named_out = {n: compiled.create_output_buffer_by_name(key, n) for n in signature["outputs"]}
        for name, buffer in named_in.items():
            buffer.write(values[name] * 2)
        compiled.run_by_name(key, named_in, named_out)
        return {**found, "by_name": {n: _read(b) for n, b in named_out.items()}}


def _read(buffer: Any) -> np.ndarray:
    details = buffer.get_tensor_details()
    return buffer.read(int(np.prod(details["shape"])), np.dtype(details["dtype"]))


def resize(interpreter: ModuleType, model: bytes, name: str, rows: int) -> dict[str, Any]:
    """Make a strict and a lenient resize, and a run with the new shape."""
    compiled = _import(interpreter, "compiled_model").CompiledModel.from_buffer(model)
    signature = compiled.get_signature_by_index(0)
    place = signature["inputs"].index(name)
    tail = compiled.get_input_tensor_details(signature["key"])[name]["shape"][1:]
    compiled.resize_input_tensor(place, [rows, *tail])
    by_index = compiled.get_input_tensor_details(signature["key"])[name]["shape"]
    compiled.resize_input_tensor_by_name(signature["key"], name, [rows + 1, *tail])
    inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    for buffer in inputs:
        shape = buffer.get_tensor_details()["shape"]
        buffer.write(np.arange(np.prod(shape), dtype=np.float32))
    compiled.run_by_index(0, inputs, outputs)
    return {
        "shape": by_index,
        "requirements": compiled.get_input_buffer_requirements(place),
        "buffers": [b.get_tensor_details() for b in (*inputs, *outputs)],
        "values": [_read(b) for b in outputs],
    }


def compiled_errors(interpreter: ModuleType, model: bytes, name: str) -> dict[str, str]:
    """Kinds of error of `CompiledModel`."""
    package = {n: _import(interpreter, n) for n in ("compiled_model", "options", "hardware_accelerator")}
    make = package["compiled_model"].CompiledModel
    accelerator = package["hardware_accelerator"].HardwareAccelerator
    compiled = make.from_buffer(model)
    signature = compiled.get_signature_by_index(0)
    key, place = signature["key"], signature["inputs"].index(name)
    inputs, outputs = compiled.create_input_buffers(0), compiled.create_output_buffers(0)
    shape = compiled.get_input_tensor_details(key)[name]["shape"]
    both = {"hardware_accel": accelerator.CPU, "options": package["options"].Options()}
    return {
        "both": error_of(lambda: make.from_buffer(model, **both)),
        "no_model": error_of(lambda: make.from_buffer(b"0123456789")),
        "no_file": error_of(lambda: make.from_file("/nonexistent.tflite")),
        "no_accelerator": error_of(lambda: make.from_buffer(model, hardware_accel=0)),
        "signature": error_of(lambda: compiled.get_input_tensor_details("absent")),
        "requirements": error_of(lambda: compiled.get_input_buffer_requirements(9)),
        "create": error_of(lambda: compiled.create_input_buffers(3)),
        "create_name": error_of(lambda: compiled.create_input_buffer_by_name(key, "absent")),
        "create_key": error_of(lambda: compiled.create_output_buffer_by_name("absent", "absent")),
        "few": error_of(lambda: compiled.run_by_index(0, inputs[:-1], outputs)),
        "no_outputs": error_of(lambda: compiled.run_by_index(0, inputs, [])),
        "run_index": error_of(lambda: compiled.run_by_index(4, inputs, outputs)),
        "run_key": error_of(lambda: compiled.run_by_name("absent", {}, {})),
        "resize": error_of(lambda: compiled.resize_input_tensor(place, [*shape[:-1], shape[-1] + 1])),
        "resize_negative": error_of(lambda: compiled.resize_input_tensor(place, [-1, *shape[1:]])),
        "resize_index": error_of(lambda: compiled.resize_input_tensor(9, shape)),
        "resize_signature": error_of(lambda: compiled.resize_input_tensor(place, shape, signature_index=7)),
        "resize_key": error_of(lambda: compiled.resize_input_tensor_by_name("absent", name, shape)),
        "resize_name": error_of(lambda: compiled.resize_input_tensor_by_name(key, "absent", shape)),
    }


def buffers(interpreter: ModuleType) -> dict[str, Any]:
    """`TensorBuffer` by itself."""
    make = _import(interpreter, "tensor_buffer").TensorBuffer
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = make.create_from_host_memory(values)
    found: dict[str, Any] = {
        "details": buffer.get_tensor_details(),
        "all": buffer.read(6, np.float32),
        "some": buffer.read(2, "float32"),
        "bits": buffer.read(6, np.int32),
        "read_far": error_of(lambda: buffer.read(7, np.float32)),
        "read_double": error_of(lambda: buffer.read(3, np.float64)),
        "write_list": error_of(lambda: buffer.write([1.0])),
        "write_double": error_of(lambda: buffer.write(np.zeros(2))),
        "write_far": error_of(lambda: buffer.write(np.zeros(7, np.float32))),
        "host_list": error_of(lambda: make.create_from_host_memory([1.0])),
        "host_strided": error_of(lambda: make.create_from_host_memory(values[:, ::2])),
        "host_double": error_of(lambda: make.create_from_host_memory(values.astype(np.float64))),
        "kinds": [
            make.create_from_host_memory(values.astype(t)).get_tensor_details()
            for t in (np.uint8, np.bool_, np.float16, np.int8, np.int32)
        ],
    }
    buffer.write(np.array([[9.0], [8.0]], np.float32)[::-1])
    found["partly_written"] = buffer.read(6, np.float32)
    buffer.destroy()
    found["destroyed"] = [
        error_of(lambda: buffer.read(6, np.float32)),
        error_of(lambda: buffer.write(values)),
        error_of(lambda: buffer.capsule),
        error_of(buffer.get_tensor_details),
        error_of(buffer.destroy),
    ]
    return found


def settings(interpreter: ModuleType, model: bytes) -> dict[str, Any]:
    """Options and environments."""
    options = _import(interpreter, "options")
    environments = _import(interpreter, "environment")
    make = _import(interpreter, "compiled_model").CompiledModel
    accelerator = _import(interpreter, "hardware_accelerator").HardwareAccelerator
    chosen = options.Options.create()
    chosen.cpu_options.num_threads = 2
    chosen.gpu_options.enforce_f32 = True
    fields = ("num_threads", "kernel_mode", "enable_ynnpack", "xnnpack_flags", "xnnpack_weight_cache_path")
    with environments.Environment.create() as environment:
        shared = make.from_buffer(model, environment=environment, options=chosen)
        found = {
            "environment": shared.environment is environment,
            "capsule": environment.capsule is None,
            "cpu": [getattr(options.Options().cpu_options, f) for f in fields],
            "kept": [chosen.cpu_options.num_threads, chosen.gpu_options.enforce_f32],
            "accelerators": [int(a) for a in accelerator],
            "default": int(options.Options().hardware_accelerators),
            "modes": {m.name: int(m) for m in options.CpuKernelMode},
            "both": error_of(
                lambda: environments.Environment.create(
                    options=environments.EnvironmentOptions(), runtime_path="x"
                )
            ),
        }
    found["closed"] = error_of(lambda: environment.capsule)
    found["model_of_closed"] = error_of(lambda: make.from_buffer(model, environment=environment))
    return found


NOT_OURS = {
    "schema_py_generated": "a file's tables as generated code; `delegate_farm.model` reads and writes files",
    "option_utils": "helpers of LiteRT's own options, as their docstring says",
    "metrics_interface": "LiteRT's own telemetry",
    "metrics_portable": "LiteRT's own telemetry",
    "aot": "compiles for NPUs",
    "tflite": "flags of the converter, which makes files and runs none",
    "tools": "programs and helpers; `farm model` and `delegate_farm.litert_tools` have ours",
}
"""Modules of LiteRT's package that ours has not, and why; of a package, all that is below it."""

GENERATED = ("_pb2",)
"""Endings of modules that are made from descriptions of messages."""


def modules(interpreter: ModuleType) -> list[str]:
    """Return the package's modules of Python that a script may import."""
    package = import_module(interpreter.__name__.rpartition(".")[0])
    sources = (source for folder in package.__path__ for source in sorted(Path(folder).iterdir()))
    names = (source.stem for source in sources if source.suffix == ".py" or (source / "__init__.py").exists())
    return [name for name in names if not name.startswith("_") and not name.endswith(GENERATED)]


def importable(interpreter: ModuleType) -> dict[str, list[str]]:
    """Classes and functions of the package that a script finds in each module that ours shall have."""
    package = interpreter.__name__.partition(".")[0]
    found: dict[str, list[str]] = {}
    for name in modules(interpreter):
        if name not in NOT_OURS:
            members = inspect.getmembers(_import(interpreter, name), lambda m: hasattr(m, "__module__"))
            found[name] = [
                n for n, m in members if str(m.__module__).startswith(package) and not n.startswith("_")
            ]
    return found


def members(interpreter: ModuleType) -> dict[str, list[str]]:
    """Public names of each class of a package's modules: methods, properties, values of enumerations."""
    found = {}
    for module, names in importable(interpreter).items():
        for name in names:
            kind = getattr(_import(interpreter, module), name)
            if inspect.isclass(kind):
                found[f"{module}.{name}"] = [member for member in dir(kind) if not member.startswith("_")]
    return found


def parameters(interpreter: ModuleType) -> dict[str, list[str]]:
    """Names of the parameters of every public method."""
    found = {}
    for module, names in (
        ("compiled_model", ("CompiledModel",)),
        ("tensor_buffer", ("TensorBuffer",)),
        ("environment", ("Environment", "EnvironmentOptions")),
        ("options", ("Options", "CpuOptions", "GpuOptions")),
        ("interpreter", ("Interpreter", "SignatureRunner", "InterpreterWithCustomOps")),
    ):
        for name in names:
            kind = getattr(_import(interpreter, module), name)
            for method, value in inspect.getmembers(kind):
                public = not method.startswith("_") or method in ("_get_ops_details", "_native_handle")
                if callable(value) and public:
                    found[f"{name}.{method}"] = list(inspect.signature(value).parameters)
            if name in ("Interpreter", "Options", "CpuOptions", "GpuOptions", "EnvironmentOptions"):
                found[name] = list(inspect.signature(kind).parameters)
    return found
