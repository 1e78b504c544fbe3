"""Translates a kernel to NVIDIA's PTX by clang and libclc. Neither a GPU nor its driver is needed."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.delegates.gpu.layout.source import Kernel
from runtime.errors import DelegateError, DelegateMissingError

FUNCTIONS: Final = "nvptx64--nvidiacl.bc"
"""The file of libclc with OpenCL's built-in functions for NVIDIA."""

_FOLDERS: Final = ("/usr/lib/clc", "/usr/share/clc", "/usr/local/share/clc")
"""Folders of libclc: Debian's, and those of its own installation."""

_VERSIONS: Final = range(21, 14, -1)
"""Versions of clang, the newest first: one that is older than libclc cannot read its functions."""

_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
"""All that clang is told of this process's environment: it is found by its path, and its log is English."""

_OPTIONS: Final = (
    "-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-O3", "-S", "-w",
    "-target", "nvptx64-nvidia-cuda",
)  # fmt: skip

_TARGETS: Final = (((8, 0), "sm_80", "ptx70"), ((7, 5), "sm_75", "ptx64"), ((6, 0), "sm_60", "ptx60"))
"""What is compiled for, by the least compute capability: the driver makes code of any newer one from it."""

STATIC_BYTES: Final = 48 << 10
"""Shared memory of a group that a kernel may declare with a fixed size (CUDA C++ Programming Guide, shared
memory). More must be asked for at the launch."""

_ALIGNMENT: Final = 16
"""Bytes to which each array in shared memory is aligned: those of a float4, the largest type there."""

_HEAD: Final = re.compile(r"\.entry [^{]*\)\n(?=\{)")
"""The head of a kernel in PTX, as LLVM writes it."""

_SHARED: Final = re.compile(r"^[ \t]*\.shared \.align \d+ \.b8 (\S+?)\[(\d+)\];\n", re.MULTILINE)
"""The declaration of an array that a kernel's work-items share, as LLVM writes it."""


@dataclass(frozen=True, slots=True)
class Ptx:
    """A kernel in PTX. `dynamic_bytes`: shared memory that its launch must ask for."""

    text: str
    dynamic_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Compiler:
    """The clang that is here, and libclc's functions."""

    clang: str
    functions: Path

    @classmethod
    def found(cls) -> "Compiler":
        """Find them. Raises `DelegateMissingError` with the line that installs them."""
        names = (*(f"clang-{version}" for version in _VERSIONS), "clang")
        clang = next(filter(None, map(shutil.which, names)), None)
        functions = next((path for one in _FOLDERS if (path := Path(one) / FUNCTIONS).exists()), None)
        if clang is None or functions is None:
            lacks = "clang" if clang is None else f"libclc ({FUNCTIONS} in {', '.join(_FOLDERS)})"
            raise DelegateMissingError(
                f"gpu delegate: kernels cannot be compiled for CUDA here: no {lacks}; on Debian and Ubuntu: "
                "apt-get install --no-install-recommends clang-15 libclc-15"
            )
        return cls(clang, functions)

    def ptx(self, kernel: Kernel, target: tuple[int, int]) -> Ptx:
        """Translate a kernel for a compute capability. Raises `DelegateError` with the compiler's log."""
        command = [self.clang, *options(target), "-Xclang", "-mlink-builtin-bitcode", "-Xclang"]
        done = subprocess.run(  # noqa: S603  # a compiler of the system, without a shell
            [*command, str(self.functions), "-", "-o", "-"],
            input=kernel.whole, capture_output=True, text=True, check=False, env=_ENVIRONMENT,
        )  # fmt: skip
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "it says nothing")
            raise DelegateError(
                f"gpu delegate: {self.clang} failed in {kernel.name} for CUDA: {first}\n{done.stderr}"
            )
        return with_room(bounded(done.stdout, kernel))


def options(target: tuple[int, int]) -> tuple[str, ...]:
    """Return clang's options for a compute capability. Raises `DelegateError` for one that is too old."""
    fitting = next(((cpu, feature) for least, cpu, feature in _TARGETS if target >= least), None)
    if fitting is None:
        oldest = ".".join(map(str, _TARGETS[-1][0]))
        raise DelegateError(
            f"gpu delegate: the backend cuda needs compute capability {oldest} or more, and the device has "
            f"{target[0]}.{target[1]}"
        )
    cpu, feature = fitting
    # As CUDA's compilers define it, so that kernels know which instructions there are.
    architecture = f"-D__CUDA_ARCH__={cpu.removeprefix('sm_')}0"
    chosen = ("-target-cpu", cpu, "-target-feature", f"+{feature}")
    return (*_OPTIONS, architecture, *(word for one in chosen for word in ("-Xclang", one)))


def bounds(kernel: Kernel) -> str:
    """Return the lines by which PTX says how large a kernel's groups are, and how many run at a time."""
    if kernel.together == 0:
        return ""
    size = ", ".join(map(str, (*kernel.group, 1, 1)[:3]))
    return f".reqntid {size}\n.minnctapersm {kernel.together}\n"


def bounded(text: str, kernel: Kernel) -> str:
    """Put a kernel's bounds behind its head."""
    return _HEAD.sub(rf"\g<0>{bounds(kernel)}", text, count=1)


def with_room(text: str) -> Ptx:
    """Put a kernel's shared arrays, where they exceed what may be declared, into one of no fixed size."""
    arrays = [(name, int(size)) for name, size in _SHARED.findall(text)]
    if sum(size for _, size in arrays) <= STATIC_BYTES:
        return Ptx(text)
    places, end = {}, 0
    for name, size in arrays:
        places[name] = end
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    # An array may be followed by a number of bytes: `name+20`.
    # The lookahead rules out longer names that merely begin with an array's.
    used = re.compile("(" + "|".join(map(re.escape, places)) + r")(?:\+(\d+))?(?=[\],;])")
    moved = used.sub(lambda found: f"in_group+{places[found[1]] + int(found[2] or 0)}", _SHARED.sub("", text))
    whole = f".extern .shared .align {_ALIGNMENT} .b8 in_group[];\n.visible .entry"
    return Ptx(moved.replace(".visible .entry", whole, 1), end)
