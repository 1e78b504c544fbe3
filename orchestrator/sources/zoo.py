"""The zoo: skeletons that come with the farm. An index names their restored sha256, source and licence."""

import json
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from orchestrator.errors import FarmError, UsageError
from orchestrator.manifest.problems import suggestion
from runtime.model import skeleton


@dataclass(frozen=True, slots=True)
class ZooModel:
    """One line of the index; `sha256` and `size_bytes` are those of the restored `.tflite`.

    `macs` are the multiply-accumulates of one call, an unknown dimension counted as 1.
    """

    name: str
    skeleton: Path
    sha256: str
    size_bytes: int
    macs: int
    source: str
    licence: str


def zoo_folder() -> Path:
    """Return the zoo's folder. Raises `FarmError` if this installation has none."""
    folder = skeleton.zoo_folder()
    if folder is None:
        raise FarmError("this installation has no zoo; use a checkout of the repository")
    return folder


def has_zoo() -> bool:
    """Whether this installation has a zoo."""
    return skeleton.zoo_folder() is not None


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
            macs=entry["macs"],
            source=entry["source"],
            licence=entry["licence"],
        )
        for entry in index["models"]
    }


def zoo_model(name: str) -> ZooModel:
    """Return the model of that name. Raises `UsageError` with the closest one."""
    models = zoo_models()
    if name not in models:
        raise UsageError(f"zoo:{name}: no such model in the zoo{suggestion(name, models)}")
    return models[name]


def zoo_models_like(pattern: str | None) -> list[ZooModel]:
    """Return the models by name whose name has the pattern in it, or matches it as a glob; all without one.

    Raises `UsageError` with the closest name where there is none.
    """
    models = zoo_models()
    if pattern is None:
        return [models[name] for name in sorted(models)]
    wanted = pattern.removeprefix("zoo:")
    found = [models[name] for name in sorted(models) if wanted in name or fnmatchcase(name, wanted)]
    if not found:
        raise UsageError(f"{pattern}: no such model in the zoo{suggestion(wanted, models)}")
    return found
