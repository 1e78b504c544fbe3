"""Runs models on Mesa's rusticl, in a process of its own: drivers are chosen before the first one is loaded.

`python -m tests.runtime.delegates.gpu.second_driver CACHE`: a pickled list of models with their inputs comes
from standard input; the device's name and each model's outputs go to standard output.
"""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pyopencl as cl

from delegate_farm import Interpreter, load_delegate
from runtime.api.tensor_buffer import TensorBuffer


def main() -> None:
    members = pickle.load(sys.stdin.buffer)
    options = {"device": "rusticl", "precision": "fp32", "tuning": "none", "cache_dir": sys.argv[1]}
    delegate = load_delegate("gpu", {**options, "require_full_delegation": True})
    outputs = [run(delegate, model, inputs) for model, inputs in members]
    pickle.dump((delegate.describe()["platform"], outputs), sys.stdout.buffer)


def run(delegate, model: bytes, inputs: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Return the outputs of the second run: it works on memory that the first has left."""
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    for _ in range(2):
        interpreter.invoke()
    outputs = {d["index"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}
    check_bound(delegate, interpreter, outputs)
    return list(outputs.values())


def check_bound(delegate, interpreter: Interpreter, outputs: dict[int, np.ndarray]) -> None:
    """Check that a run on OpenCL buffers gives the same bits: this driver's kernels cannot reach them, it
    copies.
    """
    bound = {}
    for index, output in outputs.items():
        given = cl.Buffer(delegate.opencl_context, cl.mem_flags.READ_WRITE, output.nbytes)
        bound[index] = TensorBuffer.create_from_cl_buffer(given, output.dtype, output.shape)
        interpreter.set_buffer_handle(index, bound[index])
    interpreter.set_allow_buffer_handle_output(True)
    interpreter.invoke()
    for index, output in outputs.items():
        assert bound[index].read(output.size, output.dtype).tobytes() == output.tobytes()


if __name__ == "__main__":
    main()
