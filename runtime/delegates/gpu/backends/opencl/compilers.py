"""Compiles kernels in parallel child processes (`compile_child.py`).

A driver's compiler then takes all cores, leaves its memory elsewhere, and costs a message alone where it
crashes or never ends. A request is a line of JSON with the form of the results, the text in front of every
kernel, and kernels. The answers are lines of JSON, each followed by as many bytes as it says: the result of a
kernel, a fault, the end.
"""

import atexit
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from runtime.common.system import usable_cpus
from runtime.delegates.gpu.layout.source import Kernel
from runtime.errors import DelegateError

Form: TypeAlias = Literal["code", "binaries", "trial"]
"""What a request asks for: PoCL's machine code of each kernel, the driver's binary of a program for each, or
the binary of the second kernel's program, once it has called the first kernel by its address."""

LONGEST_S: Final = 900.0
"""Seconds without an answer after which a child is ended. Mesa's llvmpipe took minutes for a convolution on a
loaded core; smaller refuses what would have worked, larger waits longer for a compiler that hangs."""

IDLE_S: Final = 4.0
"""Seconds without a request after which a child ends. The models of one program are often opened one after
the other, and a new process takes a second until its first result; larger keeps memory for longer."""

_GROUP: Final = 8
"""Most kernels of a request. The front end's start takes about as long as one kernel, so that larger groups
hardly save any more, and smaller ones share the work among the children more evenly."""

_KERNELS_PER_CHILD: Final = 2
"""Fewer kernels than this for each child, and fewer children start. A child spends 0.8 seconds of a processor
until it compiles, and 0.15 on each kernel (measured with PoCL): larger leaves cores idle, smaller starts a
process to save the time of one kernel."""

_END_S: Final = 2.0
"""Seconds for which the end of this process waits for an idle child. It needs milliseconds; one that is stuck
is killed after that."""

MOST_ON_GPU: Final = 2
"""Children of a GPU. Each has a context there, which takes half a gigabyte of its memory with NVIDIA's
driver; with one, nothing compiles while its results are taken."""

_NAMES: Final = frozenset({
    "PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV",
    "LD_LIBRARY_PATH", "LD_PRELOAD",
})  # fmt: skip
_PREFIXES: Final = (
    "OCL_", "OPENCL_", "PYOPENCL_", "POCL_", "CL_", "CUDA_", "NVIDIA_", "__NV_", "ROCM_", "ROCR_", "HIP_",
    "HSA_", "AMD_", "GPU_", "NEO_", "IGC_", "ZE_", "ZES_", "MESA_", "RUSTICL_", "LIBGL_", "GALLIUM_", "LP_",
    "RADV_", "ANV_", "DRI_", "VK_", "MALI_",
)  # fmt: skip


class ContextRefusedError(DelegateError):
    """A child got no context on the device, which may be for one process alone (NVIDIA's exclusive mode)."""


class CompilerLostError(DelegateError):
    """A child could not be started, or was ended from outside, which says nothing about what it compiled."""


def environment_of_child(pocl_cache: Path, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a child's part of this process's environment: paths of programs and drivers, and their settings.

    It imports from the same absolute folders as this process, and PoCL keeps its files in `pocl_cache`.
    """
    chosen = {
        name: value for name, value in inherited.items() if name in _NAMES or name.startswith(_PREFIXES)
    }
    path = os.pathsep.join(entry for entry in sys.path if Path(entry).is_absolute())
    return chosen | {"PYTHONPATH": path, "POCL_CACHE_DIR": str(pocl_cache)}


@dataclass(slots=True)
class _Child:
    """A compiling process. `doing` is what it was asked for last; `has_answered`: something came since."""

    process: subprocess.Popen[bytes]
    folder: Path
    idle_s: float
    started_s: float = field(default_factory=monotonic)
    answers: bytearray = field(default_factory=bytearray)
    doing: Sequence[Kernel] = ()
    asked_s: float = 0.0
    requests: int = 0
    has_answered: bool = False

    @classmethod
    def start(cls, index: int, parent: Path | None, idle_s: float) -> "_Child":
        """Start a child for the device of this index; its own folder lies in `parent`."""
        try:
            if parent is not None:
                parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(dir=parent))
        except OSError:
            # A cache that cannot be written must not stop kernels from being compiled.
            folder = Path(tempfile.mkdtemp())
        # A file rather than a pipe: nobody reads it meanwhile,
        # and a talkative driver would block on a full pipe.
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                # -P keeps the current folder, which drivers write to, off the path of imports.
                [sys.executable, "-P", "-m", f"{__package__}.compile_child", str(index), str(idle_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env=environment_of_child(folder / "pocl"),
            )
        return cls(process, folder, idle_s)

    def ask(self, form: Form, common: str, kernels: Sequence[Kernel]) -> None:
        """Send a request. One that has just ended is noticed when its answers are read."""
        self.doing, self.asked_s, self.has_answered = kernels, monotonic(), False
        self.requests += 1
        texts = [{"name": kernel.name, "text": kernel.text, "group": kernel.group} for kernel in kernels]
        request = {"form": form, "common": common, "kernels": texts}
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def read(self) -> bool:
        """Take what has arrived; False at the end of the answers."""
        assert self.process.stdout is not None
        part = os.read(self.process.stdout.fileno(), 1 << 20)
        self.answers += part
        # The limit is one of silence, so any output restarts it.
        self.asked_s = monotonic()
        return bool(part)

    def next_answer(self) -> tuple[dict[str, Any], bytes] | None:
        """Return the next complete answer, if there is one."""
        head, newline, rest = self.answers.partition(b"\n")
        if not newline:
            return None
        fields = json.loads(head)
        if len(rest) < fields["bytes"]:
            return None
        self.has_answered = True
        self.answers = rest[fields["bytes"] :]
        return fields, bytes(rest[: fields["bytes"]])

    @property
    def ended_idle(self) -> bool:
        """True where the process had ended for want of requests before it saw the last one.

        That may be its first one, if this process was held up between the start and the request.
        """
        could = self.requests > 1 or self.asked_s - self.started_s >= self.idle_s
        return could and not self.has_answered and self.process.wait() == 0

    def end(self, patience_s: float = 0.0) -> int:
        """End the process, by force where it takes longer than `patience_s`, and remove its folder."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was still to be written has no reader any more
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.process.wait()

    def last_words(self) -> str:
        """Return the end of the output of the process and its driver."""
        try:
            lines = (self.folder / "log").read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return " ".join(next((line for line in reversed(lines) if line.strip()), "").split())


@dataclass(slots=True)
class Compilers:
    """The children of one device, at most `most`; they live on for all models of this process."""

    index: int
    name: str
    folder: Path | None
    idle_s: float = IDLE_S
    most: int | None = None
    _children: list[_Child] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _owner: int = field(default_factory=os.getpid)

    def compile(
        self, form: Form, common: str, kernels: Sequence[Kernel], take: Callable[[str, bytes], None]
    ) -> None:
        """Compile kernels, and hand over each result under the kernel's name as soon as it is there.

        Raises `DelegateError` with the compiler's log, or with how it ended, and `ContextRefusedError`. What
        was not handed over then is not compiled.
        """
        self._leave_to_parent()
        with self._lock:
            try:
                with selectors.DefaultSelector() as waiting:
                    self._compile(form, common, kernels, take, waiting)
            except BaseException:
                # Answers that nobody waits for would be taken for those of the next request.
                self.close()
                raise

    def _compile(
        self,
        form: Form,
        common: str,
        kernels: Sequence[Kernel],
        take: Callable[[str, bytes], None],
        waiting: selectors.BaseSelector,
    ) -> None:
        children = max(1, min(_cpus(), len(kernels) // _KERNELS_PER_CHILD))
        count = min(children, self.most or len(kernels))
        groups = [kernels] if form == "trial" else _groups(kernels, count)
        # What follows a trial is the first model: its compilers start up meanwhile.
        free = self._ready(_cpus() if form == "trial" else count)
        while groups or waiting.get_map():
            while groups and free:
                child = free.pop()
                child.ask(form, common, groups.pop())
                waiting.register(child.process.stdout, selectors.EVENT_READ, child)  # type: ignore[arg-type]
            # Wakes up every second, so that `_check_times` notices a child that never answers.
            for key, _ in waiting.select(timeout=1.0):
                child = key.data
                is_open = child.read()
                while (answer := child.next_answer()) is not None:
                    fields, content = answer
                    if "refused" in fields:
                        raise ContextRefusedError(fields["refused"])
                    if "fault" in fields:
                        raise DelegateError(fields["fault"])
                    if "kernel" in fields:
                        take(fields["kernel"], content)
                    if "end" in fields:
                        waiting.unregister(key.fileobj)
                        free.append(child)
                if not is_open:
                    waiting.unregister(key.fileobj)
                    # The whole group again: a child that ended idle had
                    # not begun it, and `_replaced` raises for any other.
                    groups.append(child.doing)
                    free.append(self._replaced(child))
            self._check_times(waiting)

    def _ready(self, wanted: int) -> list[_Child]:
        """Children that wait for requests, at most `wanted`."""
        for child in [child for child in self._children if child.process.poll() is not None]:
            self._children.remove(child)
            child.end()
        while len(self._children) < wanted:
            self._children.append(self._started())
        return self._children[:wanted]

    def _started(self) -> _Child:
        try:
            return _Child.start(self.index, self.folder, self.idle_s)
        except OSError as error:
            raise CompilerLostError(
                f"gpu delegate: the process that compiles kernels for {self.name} cannot be started "
                f"({error.strerror or error}): free memory, or raise the limits of processes and open files"
            ) from error

    def _replaced(self, ended: _Child) -> _Child:
        """Replace a child that had ended idle; raises `DelegateError` for one that ended otherwise."""
        names = ", ".join(kernel.name for kernel in ended.doing)
        was_idle, words = ended.ended_idle, ended.last_words()
        self._children.remove(ended)
        code = ended.end()
        if was_idle:
            self._children.append(self._started())
            return self._children[-1]
        how = f"ended by signal {-code}" if code < 0 else f"ended with status {code}"
        # SIGKILL comes from outside, for example when memory runs out. Any other signal
        # is a crash of the compiler itself, so what it was compiling is to blame.
        kind = CompilerLostError if code == -signal.SIGKILL else DelegateError
        raise kind(
            f"gpu delegate: the OpenCL compiler of {self.name} {how} while it compiled {names}"
            f"{f': {words}' if words else ''}"
        )

    def _check_times(self, waiting: selectors.BaseSelector) -> None:
        for key in waiting.get_map().values():
            child: _Child = key.data
            if monotonic() - child.asked_s > LONGEST_S:
                names = ", ".join(kernel.name for kernel in child.doing)
                raise CompilerLostError(
                    f"gpu delegate: the OpenCL compiler of {self.name} did not answer for {LONGEST_S:.0f} "
                    f"seconds while it compiled {names}; it was ended"
                )

    def _leave_to_parent(self) -> None:
        """In a fork: the children, and whoever held the lock, are those of the process that made them."""
        if self._owner != os.getpid():
            self._owner, self._children, self._lock = os.getpid(), [], Lock()

    def close(self, patience_s: float = 0.0) -> None:
        """End all children."""
        self._leave_to_parent()
        while self._children:
            self._children.pop().end(patience_s)


def _cpus() -> int:
    return len(usable_cpus())


def _groups(kernels: Sequence[Kernel], children: int) -> list[Sequence[Kernel]]:
    """Group the kernels into requests of about equal size, as many for each child."""
    groups = -(-len(kernels) // (_GROUP * children)) * children
    # Length approximates the time to compile, and dealing in
    # this order gives each group its share of long texts.
    ordered = sorted(kernels, key=lambda kernel: len(kernel.text))
    return [found for i in range(groups) if (found := ordered[i::groups])]


@cache
def compilers(index: int, name: str, folder: Path | None) -> Compilers:
    """Return this process's children for a device; their files lie in `folder`, None for the system's."""
    found = Compilers(index, name, folder)
    atexit.register(found.close, _END_S)
    return found
