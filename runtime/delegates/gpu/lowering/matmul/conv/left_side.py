"""A product by kernels of work-groups, whose left side are rows, or windows of an image."""

from dataclasses import dataclass, field

from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.weights import Weights


@dataclass(frozen=True, slots=True)
class LeftSide:
    """The way in which a kernel reads the left side: defines, parameters, and if four k are adjacent.

    `kind` is rows, window, volume or phases. `members` are the groups of channels of a window, of which each
    sees its own `channels`; `phases` those of a transposed convolution of `pixels` output pixels.
    """

    kind: str
    row: int
    step: int
    channels: int
    is_aligned: bool
    scale: int | None = None
    members: int = 1
    phases: int = 1
    pixels: int = 0
    values: dict[str, int] = field(default_factory=dict)

    @property
    def defines(self) -> dict[str, int]:
        """The forms of the left side as `gemm_groups.cl` names them."""
        return {
            "LEFT_ROWS": self.kind == "rows",
            "LEFT_WINDOW": self.kind != "rows",
            "VOLUME": self.kind == "volume",
            "MEMBERS": self.members > 1,
            "PHASES": self.kind == "phases",
            "LEFT_SCALED": self.scale is not None,
            "VECTOR_LOADS": self.is_aligned,
        }


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """A product [rows, depth] by [depth, columns] that is the whole of a node."""

    left: LeftSide
    weights: Weights
    rows: int
    depth: int
    columns: int
    work: spec.Work
