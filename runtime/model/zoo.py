"""Finds the zoo: the skeletons of published networks that come with the farm.

In a checkout it is `examples/zoo`; a wheel installs the same folder as `share/delegate-farm/zoo`.
"""

import sys
from pathlib import Path


def zoo_folder() -> Path | None:
    """Return the folder with `index.json` and the skeletons; None if this installation has none."""
    checkout = Path(__file__).resolve().parents[2] / "examples" / "zoo"
    installed = Path(sys.prefix) / "share" / "delegate-farm" / "zoo"
    return next((folder for folder in (checkout, installed) if (folder / "index.json").is_file()), None)
