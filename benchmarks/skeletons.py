"""The models that benchmarks measure, from this repository alone: `examples/zoo` and variants beside it."""

from pathlib import Path
from typing import Final

from runtime.model.skeleton import restore_skeleton

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (REPOSITORY / "examples/zoo", REPOSITORY / "benchmarks/skeletons")


def restored(name: str, *more: Path) -> bytes:
    """Restore the model of this name from the first folder that has its skeleton; `more` come first.

    Raises `FileNotFoundError` with the folders that lack it.
    """
    folders = (*more, *FOLDERS)
    for folder in folders:
        path = folder / f"{name}.skel"
        if path.exists():
            return bytes(restore_skeleton(path.read_bytes()))
    raise FileNotFoundError(f"no {name}.skel in {', '.join(map(str, folders))}")
