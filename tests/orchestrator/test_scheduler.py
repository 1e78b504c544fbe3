from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.scheduler import Assignment, DeviceSlot, WaitingCell, assign

DEVICES = [f"d{i}" for i in range(6)]
NOW = 100.0

slots = st.lists(
    st.builds(DeviceSlot, st.sampled_from(DEVICES), st.sampled_from(["g0", "g1", "g2"]), st.booleans()),
    unique_by=lambda slot: slot.device_id,
)
cells = st.lists(
    st.builds(
        WaitingCell,
        cell_id=st.uuids().map(str),
        target=st.sampled_from([*DEVICES, "gone"]),
        rank=st.integers(-3, 3),
        campaign_no=st.integers(1, 4),
        position=st.integers(0, 5),
        not_before_s=st.sampled_from([0.0, NOW, NOW + 1]),
    ),
    unique_by=lambda cell: cell.cell_id,
    max_size=30,
)


@given(cells, slots)
def test_a_group_gets_at_most_one_cell_and_a_busy_group_none(waiting, devices):
    group = {slot.device_id: slot.exclusion_group for slot in devices}
    busy = {slot.exclusion_group for slot in devices if slot.busy}
    chosen = [group[assignment.device_id] for assignment in assign(waiting, devices, NOW)]
    assert len(chosen) == len(set(chosen))
    assert not busy & set(chosen)


@given(cells, slots)
def test_a_cell_goes_to_its_target_once_and_not_before_its_time(waiting, devices):
    known = {cell.cell_id: cell for cell in waiting}
    chosen = assign(waiting, devices, NOW)
    assert len({a.cell_id for a in chosen}) == len(chosen)
    for assignment in chosen:
        assert known[assignment.cell_id].target == assignment.device_id
        assert known[assignment.cell_id].not_before_s <= NOW


@given(cells, slots)
def test_no_free_group_stays_idle_while_a_cell_waits_for_it(waiting, devices):
    group = {slot.device_id: slot.exclusion_group for slot in devices}
    busy = {slot.exclusion_group for slot in devices if slot.busy}
    used = {group[a.device_id] for a in assign(waiting, devices, NOW)}
    for cell in waiting:
        if cell.target in group and cell.not_before_s <= NOW:
            assert group[cell.target] in busy | used


@given(cells, slots)
def test_the_first_in_line_wins_its_group(waiting, devices):
    group = {slot.device_id: slot.exclusion_group for slot in devices}
    known = {cell.cell_id: cell for cell in waiting}
    for assignment in assign(waiting, devices, NOW):
        winner = known[assignment.cell_id]
        rivals = [
            cell
            for cell in waiting
            if group.get(cell.target) == group[assignment.device_id] and cell.not_before_s <= NOW
        ]
        best = min((r.rank, r.campaign_no, r.position) for r in rivals)
        assert (winner.rank, winner.campaign_no, winner.position) == best


@given(cells, slots, st.randoms())
def test_the_order_of_the_arguments_changes_nothing(waiting, devices, random):
    expected = set(assign(waiting, devices, NOW))
    random.shuffle(waiting)
    random.shuffle(devices)
    assert set(assign(waiting, devices, NOW)) == expected


def test_priority_goes_before_age_and_age_before_the_matrix():
    device = [DeviceSlot("d0", "g0")]
    line = [
        WaitingCell("urgent", "d0", rank=-1, campaign_no=9, position=9),
        WaitingCell("old", "d0", rank=0, campaign_no=1, position=9),
        WaitingCell("first", "d0", rank=0, campaign_no=2, position=0),
        WaitingCell("second", "d0", rank=0, campaign_no=2, position=1),
    ]
    order = []
    while line:
        (chosen,) = assign(line, device, NOW)
        assert isinstance(chosen, Assignment)
        order.append(chosen.cell_id)
        line = [cell for cell in line if cell.cell_id != chosen.cell_id]
    assert order == ["urgent", "old", "first", "second"]
