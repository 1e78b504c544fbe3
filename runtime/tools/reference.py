"""Reference outputs: made once per model and input rules, in a process of their own, cached by hash.

The reference is LiteRT's reference kernels with one thread; where a model runs only with XNNPACK, XNNPACK's;
without ai-edge-litert our own `cpu`. The process that calls `make_reference` measures nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
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
    """Outputs of every input set: `outputs[k][i]`. `label` names the maker and its version."""

    kind: ReferenceKind
    label: str
    output_facts: tuple[OutputFacts, ...]
    outputs: tuple[tuple[Array, ...], ...]


def reference_kinds() -> tuple[ReferenceKind, ...]:
    """Return the kinds that this machine can compute, best first."""
    if litert_version() is None:
        return (ReferenceKind.CPU,)
    return (ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK)


def reference_path(
    folder: Path, model_sha256: str, rules: Mapping[str, InputRule], kind: ReferenceKind, maker: str
) -> Path:
    """Return where the reference is cached; the name is a hash of everything that its values depend on.

    `maker` is the version of LiteRT, or the identity of this runtime for kind `cpu`.
    """
    stated = {name: asdict(rule) for name, rule in rules.items()}
    key = json.dumps([model_sha256, POOL_VERSION, stated, kind.value, maker], sort_keys=True)
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()}.npz"


def make_reference(
    path: str, model_sha256: str, rules: Mapping[str, InputRule], kind: ReferenceKind
) -> Reference:
    """Run the pool once through the reference. Raises what `Opener.open` and `make_pool` raise."""
    if kind is ReferenceKind.CPU:
        opener = Opener.prepare(CPU, {})
    else:
        opener = Opener.prepare("litert", {"threads": 1, "resolver": kind.value})
    made = run_sets(opener, path, model_sha256, rules)
    return Reference(kind, _label(kind), made.facts, made.sets)


def save_reference(path: Path, reference: Reference) -> None:
    """Write atomically; concurrent writers write the same bytes."""
    facts = [asdict(fact) for fact in reference.output_facts]
    meta = {"kind": reference.kind.value, "label": reference.label, "facts": facts}
    arrays = {
        f"{k}_{i}": value for k, values in enumerate(reference.outputs) for i, value in enumerate(values)
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npz")
    np.savez(temporary, allow_pickle=False, meta=np.array(json.dumps(meta)), **arrays)
    temporary.replace(path)


def load_reference(path: Path) -> Reference:
    """Read what `save_reference` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        meta = json.loads(str(stored["meta"]))
        facts = tuple(OutputFacts(**fact) for fact in meta["facts"])
        sets = (len(stored.files) - 1) // max(1, len(facts))
        outputs = tuple(tuple(stored[f"{k}_{i}"] for i in range(len(facts))) for k in range(sets))
    return Reference(ReferenceKind(meta["kind"]), str(meta["label"]), facts, outputs)


def _label(kind: ReferenceKind) -> str:
    if kind is ReferenceKind.CPU:
        return "this runtime's cpu"
    kernels = "reference kernels" if kind is ReferenceKind.REFERENCE_KERNELS else "XNNPACK"
    return f"LiteRT {litert_version()} {kernels}, 1 thread"
