"""Reference outputs: made once per model and input rules, in processes of their own, kept under keys.

The reference is LiteRT's reference kernels with one thread; where a model runs only with XNNPACK, XNNPACK's;
without ai-edge-litert our own `cpu`. All other kinds are honest draws beside it, whose scatter tells how far
a right output may be from it. The process that calls `make_reference` measures nothing.
"""

import contextlib
import hashlib
import json
import platform
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np

from runtime.common.durable import replacing
from runtime.delegates.base import Array
from runtime.delegates.cpu import CPU
from runtime.delegates.litert import litert_version
from runtime.judge.agreement import OutputFacts
from runtime.judge.rules import REDUCED, Arithmetic, arithmetic_of
from runtime.measure.inputs import POOL_VERSION, InputRule, sets_of
from runtime.measure.loading import Opener, Subject
from runtime.measure.outputs import OutputSets, run_sets
from runtime.measure.perturbed import moved_constants, moved_inputs, rounded_constants
from runtime.model.reader import load_model
from runtime.model.schema import TensorType


class ReferenceKind(StrEnum):
    """The origin of computed outputs: LiteRT's kernels of a kind, or our own.

    `THREADS` is XNNPACK with several; `MOVED` has its inputs, or its weights, moved by a millionth, on the
    reference kernels, or on XNNPACK where the model computes in floats; the others are XNNPACK with weights
    rounded to a narrow type, as they are or as if scaled before.
    """

    REFERENCE_KERNELS = "reference"
    XNNPACK = "xnnpack"
    CPU = "cpu"
    BUILTIN = "builtin"
    THREADS = "threads"
    MOVED = "moved"
    FP16 = "fp16"
    FP16_SCALED = "fp16_scaled"
    BF16 = "bf16"
    BF16_SCALED = "bf16_scaled"


_THREADS: Final = 4
"""Threads of the draw that has several. LiteRT may have more threads than the machine has CPUs."""

_ROUNDED: Final = {
    ReferenceKind.FP16: ("fp16", 0),
    ReferenceKind.FP16_SCALED: ("fp16", 1),
    ReferenceKind.BF16: ("bf16", 0),
    ReferenceKind.BF16_SCALED: ("bf16", 1),
}
"""Draws of rounded weights: the type, and the number of the draw (`perturbed.rounded_constants`)."""

_LABELS: Final = {
    ReferenceKind.REFERENCE_KERNELS: "reference kernels, 1 thread",
    ReferenceKind.XNNPACK: "XNNPACK, 1 thread",
    ReferenceKind.BUILTIN: "optimised kernels, 1 thread",
    ReferenceKind.THREADS: f"XNNPACK, {_THREADS} threads",
    ReferenceKind.MOVED: "moved by a millionth",
    **{kind: f"XNNPACK, weights in {p}" for kind, (p, _) in _ROUNDED.items()},
}


@dataclass(frozen=True, slots=True)
class Reference:
    """Outputs of every input set: `outputs[k][i]`. `label` names the maker and its version.

    `pool_sha256` is that of the inputs; empty where it is not known.
    """

    kind: ReferenceKind
    label: str
    output_facts: tuple[OutputFacts, ...]
    outputs: tuple[tuple[Array, ...], ...]
    pool_sha256: str = ""


def reference_kinds() -> tuple[ReferenceKind, ...]:
    """Return the kinds that this machine can compute, best first."""
    if litert_version() is None:
        return (ReferenceKind.CPU,)
    return (ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK)


def litert_maker() -> str:
    """Return what LiteRT's kernels depend on here: its version and the architecture."""
    return f"{litert_version()}/{platform.machine()}"


def reference_key(
    model_sha256: str, rules: Mapping[str, InputRule], kind: ReferenceKind, maker: str, forgotten: int = 0
) -> str:
    """Return the sha256 of everything that a reference's values depend on.

    `maker` is `litert_maker`, or the identity of this runtime for kind `cpu`. `forgotten`: how often the
    references of the model were forgotten; those made before are none of those made since.
    """
    stated = {name: rule.stated() for name, rule in rules.items()}
    pool = [POOL_VERSION, sets_of(rules)]
    key = json.dumps([model_sha256, pool, stated, kind.value, maker, forgotten], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()


def draw_kinds(arithmetic: Arithmetic, precisions: Collection[str]) -> tuple[ReferenceKind, ...]:
    """Return the draws by whose scatter a model is judged that delegates compute in these precisions."""
    types = {REDUCED.get(precision) for precision in precisions}
    rounded = tuple(kind for kind, (type_, _) in _ROUNDED.items() if type_ in types)
    if arithmetic is Arithmetic.FLOAT:
        return (ReferenceKind.MOVED, *rounded)
    return (ReferenceKind.BUILTIN, ReferenceKind.THREADS, ReferenceKind.MOVED, *rounded)


def make_reference(
    path: str, model_sha256: str, rules: Mapping[str, InputRule], kind: ReferenceKind
) -> Reference:
    """Run the pool once through the reference.

    Raises what `Opener.open` and `make_pool` raise; `NothingToMoveError` for a draw that would be no other.
    """
    if kind in _ROUNDED:
        with _written(rounded_constants(Path(path).read_bytes(), *_ROUNDED[kind])) as changed:
            made = run_sets(Subject(_litert("xnnpack"), changed, model_sha256, rules))
    elif kind is ReferenceKind.MOVED:
        made = _moved(path, model_sha256, rules)
    elif kind is ReferenceKind.CPU:
        made = run_sets(Subject(Opener.prepare(CPU, {}), path, model_sha256, rules))
    elif kind is ReferenceKind.THREADS:
        made = run_sets(Subject(_litert("xnnpack", _THREADS), path, model_sha256, rules))
    else:
        made = run_sets(Subject(_litert(kind.value), path, model_sha256, rules))
    return Reference(kind, _label(kind), made.facts, made.sets, made.pool_sha256)


def _moved(path: str, model_sha256: str, rules: Mapping[str, InputRule]) -> OutputSets:
    """Move inputs that are floats; and weights where these inputs are rounded to integers, or are none."""
    model = load_model(path)
    is_float = arithmetic_of(model) is Arithmetic.FLOAT
    opener = _litert("xnnpack" if is_float else "reference")
    graph = model.subgraphs[0]
    if is_float and any(graph.tensors[i].type is TensorType.FLOAT32 for i in graph.inputs):
        return run_sets(Subject(opener, path, model_sha256, rules), moved_inputs)
    with _written(moved_constants(Path(path).read_bytes())) as changed:
        return run_sets(Subject(opener, changed, model_sha256, rules), moved_inputs)


@contextlib.contextmanager
def _written(data: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        yield file.name


def _litert(resolver: str, threads: int = 1) -> Opener:
    return Opener.prepare("litert", {"threads": threads, "resolver": resolver})


def save_reference(path: Path, reference: Reference) -> None:
    """Write atomically. The same outputs give the same bytes, whoever writes them and when."""
    facts = [asdict(fact) for fact in reference.output_facts]
    meta = {
        "kind": reference.kind.value,
        "label": reference.label,
        "facts": facts,
        "pool_sha256": reference.pool_sha256,
    }
    arrays = {
        f"{k}_{i}": value for k, values in enumerate(reference.outputs) for i, value in enumerate(values)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not synchronised: a reference is judged by its hash before it is kept, and can be made again.
    with replacing(path, sync=False) as file:
        # A .npz holds arrays alone, so that the text is one without dimensions. Its members all bear the same
        # date, 1980-01-01, so that the bytes follow from the values.
        np.savez(file, allow_pickle=False, meta=np.array(json.dumps(meta)), **arrays)


def load_reference(path: Path) -> Reference:
    """Read what `save_reference` wrote. Raises `ValueError` for any other content, `OSError`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            meta = json.loads(str(stored["meta"]))
            facts = tuple(OutputFacts(**fact) for fact in meta["facts"])
            # All but `meta` are outputs.
            sets = (len(stored.files) - 1) // max(1, len(facts))
            outputs = tuple(tuple(stored[f"{k}_{i}"] for i in range(len(facts))) for k in range(sets))
        return Reference(
            ReferenceKind(meta["kind"]), str(meta["label"]), facts, outputs, str(meta["pool_sha256"])
        )
    # What zipfile, numpy and the look-ups raise for damaged content; a ValueError passes as it is.
    except (KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path.name} is no reference: {error}") from error


def _label(kind: ReferenceKind) -> str:
    if kind is ReferenceKind.CPU:
        return "this runtime's cpu"
    return f"LiteRT {litert_version()} {_LABELS[kind]}"
