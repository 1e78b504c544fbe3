"""A delegate that takes longer than LiteRT by a known share, as a third party would install it.

It runs LiteRT and then waits, on its CPU, for a share of what that took: its ratio over LiteRT is known
whatever the machine is doing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from runtime.delegates.descriptor import DelegateDescriptor, Option, threads_option

if TYPE_CHECKING:
    from runtime.delegates.base import LoadedModel

NAME: Final = "slower"

DESCRIPTOR: Final = DelegateDescriptor(
    name=NAME,
    implementation="slower_delegate:SlowerDelegate",
    options={
        "threads": threads_option(),
        "share": Option(value_type=float, default=0.0, help="Share of an invoke for which it waits."),
    },
)


def install(folder: Path) -> None:
    """Make a distribution of this very module in `folder`, which must be on the module path."""
    metadata = folder / "slower_delegate-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copyfile(__file__, folder / "slower_delegate.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slower-delegate\nVersion: 1.0\n")
    entry = f"[delegate_farm.delegates]\n{NAME} = slower_delegate:DESCRIPTOR\n"
    (metadata / "entry_points.txt").write_text(entry)


class SlowerDelegate:
    """LiteRT, and a wait behind each invoke."""

    name = NAME

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Options: LiteRT's `threads`, and `share`."""
        # A descriptor is cheap to import.
        from runtime.delegates.peers.litert_delegate import LiteRtDelegate  # noqa: PLC0415

        self._share = float(options.get("share", 0.0))
        self._litert = LiteRtDelegate({k: v for k, v in options.items() if k == "threads"})

    def load(self, path: str) -> LoadedModel:
        """LiteRT's interpreter, whose `invoke` takes longer."""
        model = self._litert.load(path)
        invoke, share = model.invoke, self._share

        def longer() -> None:
            began = time.perf_counter()
            invoke()
            ended = time.perf_counter()
            until = ended + share * (ended - began)
            # Not asleep: a sleep ends some 60 us late, which of a short invoke is more than the share.
            while time.perf_counter() < until:
                pass

        model.invoke = longer  # type: ignore[method-assign]  # an instance's own, of a class without slots
        return model

    def describe(self) -> Mapping[str, str]:
        """Return LiteRT's settings, and the share."""
        return {**self._litert.describe(), "share": f"{self._share:g}"}
