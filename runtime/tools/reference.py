"""Reference outputs: made once per model and input rules, in a process of their own, kept under a key.

The reference is LiteRT's reference kernels with one thread; where a model runs only with XNNPACK, XNNPACK's;
without ai-edge-litert our own `cpu`. The process that calls `make_reference` measures nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from runtime.delegates.base import Array
from runtime.delegates.cpu import CPU
from runtime.delegates.litert import litert_version
from runtime.tools.agreement import OutputFacts
from runtime.tools.inputs import POOL_VERSION, InputRule
from runtime.tools.loading import Opener
from runtime.tools.outputs import run_sets


class ReferenceKind(StrEnum):
    """The kernels that computed a reference."""

    REFERENCE_KERNELS = "reference"
    XNNPACK = "xnnpack"
    CPU = "cpu"


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
    stated = {name: asdict(rule) for name, rule in rules.items()}
    key = json.dumps([model_sha256, POOL_VERSION, stated, kind.value, maker, forgotten], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()


def make_reference(
    path: str, model_sha256: str, rules: Mapping[str, InputRule], kind: ReferenceKind
) -> Reference:
    """Run the pool once through the reference. Raises what `Opener.open` and `make_pool` raise."""
    if kind is ReferenceKind.CPU:
        opener = Opener.prepare(CPU, {})
    else:
        opener = Opener.prepare("litert", {"threads": 1, "resolver": kind.value})
    made = run_sets(opener, path, model_sha256, rules)
    return Reference(kind, _label(kind), made.facts, made.sets, made.pool_sha256)


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
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npz")
    np.savez(temporary, allow_pickle=False, meta=np.array(json.dumps(meta)), **arrays)
    temporary.replace(path)


def load_reference(path: Path) -> Reference:
    """Read what `save_reference` wrote. Raises `ValueError` for any other content, `OSError`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            meta = json.loads(str(stored["meta"]))
            facts = tuple(OutputFacts(**fact) for fact in meta["facts"])
            sets = (len(stored.files) - 1) // max(1, len(facts))
            outputs = tuple(tuple(stored[f"{k}_{i}"] for i in range(len(facts))) for k in range(sets))
        return Reference(
            ReferenceKind(meta["kind"]), str(meta["label"]), facts, outputs, str(meta["pool_sha256"])
        )
    except (KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path.name} is no reference: {error}") from error


def _label(kind: ReferenceKind) -> str:
    if kind is ReferenceKind.CPU:
        return "this runtime's cpu"
    kernels = "reference kernels" if kind is ReferenceKind.REFERENCE_KERNELS else "XNNPACK"
    return f"LiteRT {litert_version()} {kernels}, 1 thread"
