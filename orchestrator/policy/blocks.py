"""Decides which cells share blocks of a measurement, and when a result gets more blocks. Pure.

Cells of one model on one host are measured together by blocks (`agent.runner.judge.blocks`): a contender is
compared with the baseline on its own device, where that hosts the baseline's delegate, else on the CPU of its
host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from agent.wire.bounded import MAX_BLOCKS
from agent.wire.exclusion import joint_group
from agent.wire.measurement import Measurement, Refinement
from agent.wire.plan import MeasurePlan
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import LEAST_TARGET
from orchestrator.policy.selectors import DeviceLike

D = TypeVar("D", bound=DeviceLike)


def baseline_device(device: D, host: Sequence[D], baseline_kind: str) -> D | None:
    """Return the device of a host on which the baseline of this one runs; None if none hosts the delegate.

    Devices that share no exclusion group at all cannot be leased together, and so are not compared.
    """
    hosting = [
        other
        for other in host
        if baseline_kind in other.delegates
        and joint_group((device.exclusion_group, other.exclusion_group)) is not None
    ]
    own = [other for other in hosting if other.device_id == device.device_id]
    processors = sorted((d for d in hosting if d.kind == "cpu"), key=lambda other: other.device_id)
    # Of several GPUs none is the host's: a CPU would be compared with whichever comes first.
    candidates = own or processors or (hosting if len(hosting) == 1 else [])
    return next(iter(candidates), None)


def compared_with(baseline: D, host: Sequence[D], baseline_kind: str) -> list[D]:
    """Return the devices of a host that are compared with the baseline on this device, itself among them."""
    return [device for device in host if baseline_device(device, host, baseline_kind) is baseline]


def kept_busy(device: D, host: Sequence[D], baseline_kind: str | None) -> str:
    """Return the exclusion group that a cell takes: with a baseline, that of all compared devices."""
    baseline = None if baseline_kind is None else baseline_device(device, host, baseline_kind)
    if baseline is None or baseline_kind is None:
        return device.exclusion_group
    together = compared_with(baseline, host, baseline_kind)
    return joint_group(other.exclusion_group for other in together) or device.exclusion_group


@dataclass(frozen=True, slots=True)
class Refining:
    """Why a measured cell waits: blocks are added to `earlier`, the result that it shows.

    `target`: the half width at which there are enough of them; None: that of its plan. `rank`: its own, while
    the vaguest cells go first. `ends_at`: none begins after that; None: all do. `continues`: the result ended
    early, and gets what its plan still asks for; else it gets more than that.
    """

    earlier: Refinement
    target: float | None
    rank: int
    ends_at: datetime | None = None
    continues: bool = False

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "Refining":
        """Take it from what `stored` made."""
        return _REFINING.validate_python(stored)

    @property
    def stored(self) -> dict[str, Any]:
        """The same as JSON."""
        return dict(_REFINING.dump_python(self, mode="json"))

    def plan(self, plan: MeasurePlan) -> MeasurePlan:
        """Its attempt's plan: at most as many blocks again as the plan has, until the target is reached.

        One that continues gets as many as the plan has, and one at least. None leaves because others are
        better.
        """
        count = len(self.earlier.blocks)
        most = max(plan.max_blocks, count + 1) if self.continues else count + plan.max_blocks
        most = min(MAX_BLOCKS, most)
        target = plan.target if self.target is None else self.target
        return plan.model_copy(update={"max_blocks": most, "target": target, "halving": None})


_REFINING: Final = TypeAdapter(Refining)


def unfinished(measurement: Measurement | None, environment_id: str, grade: str | None) -> Refinement | None:
    """Return the result that another attempt goes on from; None for one that is complete, or void."""
    if measurement is None or not measurement.ended_early or grade == "void" or not measurement.blocks:
        return None
    return Refinement(environment_id=environment_id, blocks=measurement.blocks)


def continued(stored: dict[str, Any] | None, rank: int, earlier: Refinement | None) -> dict[str, Any] | None:
    """Return, as `Refining.stored`, how a cell of this rank goes on from `earlier`, where there is that.

    `stored`: how it went on before.
    """
    if earlier is None:
        return stored
    if stored is None:
        return Refining(earlier, None, rank, continues=True).stored
    before = Refining.read(stored)
    # How the user asked for blocks outlasts the attempts; the blocks are those of the newest.
    until_decided = before.earlier.until_decided
    return replace(before, earlier=earlier.model_copy(update={"until_decided": until_decided})).stored


def refined_to(stored: Mapping[str, Any] | None) -> tuple[bool, float | None]:
    """Return what cells that are measured in the same blocks have in common: whether and to what target."""
    return (False, None) if stored is None else (True, stored["target"])


def require_target(target: float) -> None:
    """Raise `UsageError` for a half width that no number of blocks reaches."""
    if not LEAST_TARGET <= target < 1.0:
        raise UsageError(f"a target is from {LEAST_TARGET:.1%} to below 100%, such as 3%; found {target:g}")
