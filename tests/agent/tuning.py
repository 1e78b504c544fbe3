"""A delegate that chooses by timing, as a third party would install it: what it chooses is drawn by lot."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.delegates.descriptor import DelegateDescriptor, Option

DESCRIPTOR = DelegateDescriptor(
    name="lottery",
    implementation="lottery_delegate:Lottery",
    options={
        "choices": Option(value_type=str, help="What is not drawn again."),
        "draws": Option(value_type=bool, default=True, help="Whether anything is drawn."),
    },
)


def install(folder: Path) -> None:
    """Make a distribution of this very module in `folder`, which must be on the module path."""
    metadata = folder / "lottery_delegate-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copyfile(__file__, folder / "lottery_delegate.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lottery-delegate\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[delegate_farm.delegates]\nlottery = lottery_delegate:DESCRIPTOR\n"
    )


class Lottery:
    """Our interpreter under another name."""

    name = "lottery"

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._drawn = secrets.token_hex(6) if options.get("draws", True) else None
        self._choices = options.get("choices", self._drawn)

    def load(self, path: str) -> Any:
        from delegate_farm import Interpreter

        model = Interpreter(model_path=path)
        model.allocate_tensors()
        return model

    def describe(self) -> Mapping[str, str]:
        return {"precision": "fp32", **({"choices": self._choices} if self._choices else {})}
