"""The zoo: skeletons that come with the farm. An index names each one's restored sha256, source and licence.

In a checkout the zoo is `examples/zoo`; a wheel installs the same folder as `share/delegate-farm/zoo`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.errors import FarmError, UsageError
from orchestrator.manifest.problems import suggestion


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One line of the index; `sha256` and `size_bytes` are those of the restored `.tflite`."""

    name: str
    skeleton: Path
    sha256: str
    size_bytes: int
    source: str
    licence: str


def zoo_folder() -> Path:
    """The zoo's folder. Raises `FarmError` where this installation has none."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "zoo"
    installed = Path(sys.prefix) / "share" / "delegate-farm" / "zoo"
    for folder in (checkout, installed):
        if (folder / "index.json").is_file():
            return folder
    raise FarmError("this installation has no zoo; use a checkout of the repository")


@cache
def zoo_models() -> dict[str, ZooModel]:
    """Every model of the zoo by its name."""
    folder = zoo_folder()
    index = json.loads((folder / "index.json").read_text())
    return {
        entry["name"]: ZooModel(
            name=entry["name"],
            skeleton=folder / Path(entry["file"]).name,
            sha256=entry["sha256"],
            size_bytes=entry["bytes"],
            source=entry["source"],
            licence=entry["licence"],
        )
        for entry in index["models"]
    }


def zoo_model(name: str) -> ZooModel:
    """The model of that name. Raises `UsageError` with the closest one."""
    models = zoo_models()
    if name not in models:
        raise UsageError(f"zoo:{name}: no such model in the zoo{suggestion(name, models)}")
    return models[name]
