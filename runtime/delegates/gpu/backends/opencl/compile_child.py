"""The process in which a driver compiles: it may crash, leak or hang there without harm to its parent.

Requests come as lines of JSON on the standard input, answers go to the standard output; `compilers.py` is the
other end and says what they hold. The process ends with its input, or when nobody has asked for a while.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.by_address import try_addresses
from runtime.delegates.gpu.backends.opencl.device import is_gpu, list_devices, mapped_errors, open_context
from runtime.delegates.gpu.backends.opencl.program import binary_of, built
from runtime.errors import DelegateError, FarmRuntimeError


class Compiler:
    """A device whose driver compiles, and where to say what came of it."""

    def __init__(self, index: int, answers: IO[bytes]) -> None:
        self._cl = cl
        self._answers = answers
        device = list_devices()[index]
        # A GPU's driver has compiled once it has built; a kernel that runs there may refuse what it is given.
        self._compiles_what_runs = not is_gpu(device)
        try:
            self._context = open_context(device)
        except DelegateError as error:
            self.say(refused=str(error))
            raise
        self._queue = cl.CommandQueue(self._context)

    def say(self, content: bytes = b"", **head: Any) -> None:
        """One answer: a line of JSON, which gives the number of bytes behind it."""
        self._answers.write(json.dumps({**head, "bytes": len(content)}).encode() + b"\n" + content)
        self._answers.flush()

    def serve(self, request: Mapping[str, Any]) -> None:
        """Answer a request: one answer for each result, and one for its end."""
        try:
            with mapped_errors("compiling"):
                {"code": self._code, "binaries": self._binaries, "trial": self._trial}[request["form"]](
                    request["common"], request["kernels"]
                )
        except FarmRuntimeError as error:
            self.say(fault=str(error))
        self.say(end=True)

    def _code(self, common: str, kernels: Sequence[Mapping[str, Any]]) -> None:
        """Machine code, of all kernels in one program: the front end starts once."""
        program = built(self._context, common + "".join(kernel["text"] for kernel in kernels))
        for kernel in kernels:
            self._run(program, kernel["name"], np.uint64(0))
            self.say(_left_by_pocl(kernel["name"]), kernel=kernel["name"])

    def _binaries(self, common: str, kernels: Sequence[Mapping[str, Any]]) -> None:
        """Report the driver's binaries of programs that hold one kernel each."""
        for kernel in kernels:
            program = built(self._context, common + kernel["text"])
            if self._compiles_what_runs:
                self._run(program, kernel["name"], np.int32(0), tuple(kernel["group"]))
            self.say(binary_of(program), kernel=kernel["name"])

    def _trial(self, common: str, kernels: Sequence[Mapping[str, Any]]) -> None:
        """Report the binary of `run_layers` after it has called the first kernel by its address."""
        called, layers = kernels
        program = built(self._context, common + called["text"])
        self._run(program, called["name"], np.uint64(0))
        function = _left_by_pocl(called["name"])
        binary = try_addresses(self._context, self._queue, common + layers["text"], called["name"], function)
        self.say(binary, kernel=layers["name"])

    def _run(
        self, program: cl.Program, name: str, last: np.integer[Any], group: tuple[int, ...] = (1,)
    ) -> None:
        """Run a kernel on nothing, one group: drivers of CPU devices compile it only now."""
        kernel = self._cl.Kernel(program, name)
        # Given a null row or table, every entry returns at once (`called.cl`, `enqueued.cl`, `grouped.cl`).
        kernel.set_args(None, None, None, last)
        self._cl.enqueue_nd_range_kernel(self._queue, kernel, group, group)
        self._queue.finish()


def _left_by_pocl(name: str) -> bytes:
    """Return a kernel's machine code, which PoCL leaves in its cache. Raises `DelegateError` without it."""
    # A kernel that was compiled before is not compiled again, so its file stays where it is.
    # The folders: two for the program's hash, one for the kernel, one for its work-group size.
    found = list(Path(os.environ["POCL_CACHE_DIR"]).glob(f"*/*/{name}/*/{name}.so"))
    if not found:
        raise DelegateError(f"gpu delegate: PoCL left no machine code of {name} in its cache")
    return found[0].read_bytes()


def main() -> None:
    """Serve until the input ends, or is silent for too long.

    The arguments are the index of the device, and the seconds without a request after which the process ends.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What a driver prints must not get between the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Unbuffered, so that `select` sees every line that was not read yet.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)
    compiler = Compiler(int(sys.argv[1]), answers)
    idle_s = float(sys.argv[2])
    while select.select([requests], [], [], idle_s)[0] and (line := _line(requests)):
        compiler.serve(json.loads(line))
    # Not by the interpreter's own end: drivers are known to crash in it.
    os._exit(0)


def _line(requests: IO[bytes]) -> bytes:
    parts = []
    while part := requests.read(1 << 16):
        parts.append(part)
        # The parent waits for the answers before it sends the next request, so nothing can follow this line.
        if part.endswith(b"\n"):
            break
    return b"".join(parts)


if __name__ == "__main__":
    main()
