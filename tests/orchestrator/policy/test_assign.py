from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.policy.assign import (
    AGEING_S,
    Assignment,
    DeviceSlot,
    Occupancy,
    Share,
    WaitingCell,
    aged_rank,
    assign,
    charge,
)

DEVICES = [f"d{i}" for i in range(6)]
GROUPS = ["a", "b", "a/0", "a/1", "b/0", "c"]
NOW = 100_000.0

slots = st.lists(
    st.builds(
        DeviceSlot,
        st.sampled_from(DEVICES),
        st.sampled_from(GROUPS),
        quarantined=st.booleans(),
    ),
    unique_by=lambda slot: slot.device_id,
)
cells = st.lists(
    st.builds(
        WaitingCell,
        cell_id=st.uuids().map(str),
        devices=st.frozensets(st.sampled_from([*DEVICES, "gone"]), min_size=1, max_size=3),
        rank=st.integers(-3, 3),
        campaign_no=st.integers(1, 4),
        position=st.integers(0, 5),
        not_before_s=st.sampled_from([0.0, NOW, NOW + 1]),
        expected_s=st.sampled_from([1.0, 10.0]),
        health=st.booleans(),
    ),
    unique_by=lambda cell: cell.cell_id,
    max_size=30,
)
taken_groups = st.frozensets(st.sampled_from(GROUPS), max_size=2)
share_maps = st.dictionaries(
    st.integers(1, 4), st.builds(Share, st.sampled_from([0.0, 5.0, 50.0]), st.sampled_from([0.0, NOW]))
)


def excludes(one: str, other: str) -> bool:
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


@given(cells, slots, taken_groups, share_maps)
def test_nothing_runs_beside_what_excludes_it(waiting, devices, taken, shares):
    group = {slot.device_id: slot.exclusion_group for slot in devices}
    chosen = assign(waiting, devices, NOW, taken=taken, shares=shares)
    running = [*taken, *(group[a.device_id] for a in chosen)]
    for number, one in enumerate(running):
        for other in running[max(number + 1, len(taken)) :]:
            assert not excludes(one, other)


@given(cells, slots, taken_groups)
def test_a_cell_goes_once_to_a_device_that_may_take_it_now(waiting, devices, taken):
    known = {cell.cell_id: cell for cell in waiting}
    slot = {slot.device_id: slot for slot in devices}
    chosen = assign(waiting, devices, NOW, taken=taken)
    assert len({a.cell_id for a in chosen}) == len(chosen)
    for a in chosen:
        cell = known[a.cell_id]
        assert a.device_id in cell.devices
        assert cell.not_before_s <= NOW
        assert cell.health or not slot[a.device_id].quarantined


@given(cells, slots, taken_groups)
def test_a_device_stays_idle_only_where_something_excludes_it_or_holds_its_place(waiting, devices, taken):
    chosen = assign(waiting, devices, NOW, taken=taken)
    group = {slot.device_id: slot.exclusion_group for slot in devices}
    running = [*taken, *(group[a.device_id] for a in chosen)]
    served = {a.cell_id for a in chosen}
    ready = [cell for cell in waiting if cell.not_before_s <= NOW]
    for cell in ready:
        for slot in devices:
            if cell.cell_id in served or not slot.takes(cell):
                continue
            blocked = any(excludes(slot.exclusion_group, other) for other in running)
            holders = {
                held.exclusion_group
                for other in ready
                if other.cell_id not in served
                for held in devices
                if held.takes(other)
            }
            held = any(excludes(slot.exclusion_group, group) for group in holders - {slot.exclusion_group})
            assert blocked or held


@given(cells, slots, taken_groups, share_maps, st.randoms())
def test_the_order_of_the_arguments_changes_nothing(waiting, devices, taken, shares, random):
    expected = set(assign(waiting, devices, NOW, taken=taken, shares=shares))
    random.shuffle(waiting)
    random.shuffle(devices)
    assert set(assign(waiting, devices, NOW, taken=taken, shares=shares)) == expected


@given(cells, share_maps)
def test_the_first_in_line_gets_the_only_device(waiting, shares):
    device = DeviceSlot("d0", "a")
    chosen = assign(waiting, [device], NOW, shares=shares)
    rivals = [c for c in waiting if "d0" in c.devices and c.not_before_s <= NOW]
    assert len(chosen) == bool(rivals)
    if not rivals:
        return
    winner = next(c for c in rivals if c.cell_id == chosen[0].cell_id)
    assert winner.health or not any(c.health for c in rivals)
    peers = [c for c in rivals if c.health == winner.health]

    def share(cell):
        return shares.get(cell.campaign_no, Share())

    def urgency(cell):
        return aged_rank(cell.rank, share(cell), NOW)

    assert urgency(winner) == min(map(urgency, peers))
    same = [c for c in peers if urgency(c) == urgency(winner)]
    assert share(winner).served_s == min(share(c).served_s for c in same)
    own = [c for c in same if c.campaign_no == winner.campaign_no and c.rank == winner.rank]
    assert winner.position == min(c.position for c in own)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1.0, 3.0, 20.0])), min_size=8, max_size=60),
)
def test_campaigns_of_one_priority_get_like_shares_of_a_device(work):
    """A device serves whole cells, so shares differ by at most the longest of them."""
    line = [
        WaitingCell(f"{n}", frozenset({"d0"}), 0, campaign, n, expected_s=seconds)
        for n, (campaign, seconds) in enumerate(work)
    ]
    shares = {cell.campaign_no: Share(0.0, NOW) for cell in line}
    longest = max(cell.expected_s for cell in line)
    while len({cell.campaign_no for cell in line}) == len(shares):
        (chosen,) = assign(line, [DeviceSlot("d0", "a")], NOW, shares=shares)
        cell = next(c for c in line if c.cell_id == chosen.cell_id)
        line.remove(cell)
        given_s = shares[cell.campaign_no].served_s + cell.expected_s
        shares[cell.campaign_no] = Share(given_s, NOW)
        served = [share.served_s for share in shares.values()]
        assert max(served) - min(served) <= longest


@given(st.integers(1, 20), st.integers(1, 30))
def test_nothing_waits_for_ever_behind_higher_priorities(steps, hours_more):
    """With a new urgent cell every hour, a patient campaign gets the device once its age has made it up."""
    urgent = WaitingCell("urgent", frozenset({"d0"}), -steps, 2, 0)
    patient = WaitingCell("patient", frozenset({"d0"}), 0, 1, 0)
    for hour in range(steps + hours_more):
        now = NOW + hour * AGEING_S
        shares = {1: Share(0.0, NOW), 2: Share(hour * 60.0, now)}
        (chosen,) = assign([urgent, patient], [DeviceSlot("d0", "a")], now, shares=shares)
        assert chosen.cell_id == ("patient" if hour >= steps else "urgent")


def test_priority_goes_before_share_and_share_before_the_matrix():
    device = [DeviceSlot("d0", "g0")]
    here = frozenset({"d0"})
    line = [
        WaitingCell("urgent", here, rank=-1, campaign_no=9, position=9),
        WaitingCell("poor", here, rank=0, campaign_no=3, position=9),
        WaitingCell("first", here, rank=0, campaign_no=2, position=0),
        WaitingCell("second", here, rank=0, campaign_no=2, position=1),
    ]
    shares = {2: Share(60.0, NOW), 3: Share(5.0, NOW), 9: Share(99.0, NOW)}
    order = []
    while line:
        (chosen,) = assign(line, device, NOW, shares=shares)
        assert isinstance(chosen, Assignment)
        order.append(chosen.cell_id)
        line = [cell for cell in line if cell.cell_id != chosen.cell_id]
    assert order == ["urgent", "poor", "first", "second"]


def test_a_cpu_cell_waits_for_the_gpus_beside_it_and_they_do_not_overtake_it_for_ever():
    cpu, gpus = DeviceSlot("cpu", "host"), [DeviceSlot(f"g{i}", f"host/g{i}") for i in range(2)]
    cpu_cell = WaitingCell("c", frozenset({"cpu"}), 0, 1, position=1)
    later = WaitingCell("later", frozenset({"g1"}), 0, 1, position=2)
    earlier = replace(later, cell_id="earlier", position=0)
    assert assign([cpu_cell, later], [cpu, *gpus], NOW, taken=["host/g0"]) == ()
    assert assign([cpu_cell, earlier], [cpu, *gpus], NOW, taken=["host/g0"]) == (Assignment("earlier", "g1"),)
    assert assign([cpu_cell, later], [cpu, *gpus], NOW) == (Assignment("c", "cpu"),)


def test_gpus_of_one_host_run_side_by_side_only_in_groups_of_their_own():
    work = [WaitingCell(f"c{i}", frozenset({f"g{i}"}), 0, 1, i) for i in range(2)]
    alone = [DeviceSlot(f"g{i}", "host") for i in range(2)]
    beside = [DeviceSlot(f"g{i}", f"host/g{i}") for i in range(2)]
    assert len(assign(work, alone, NOW)) == 1
    assert len(assign(work, beside, NOW)) == 2


def test_a_group_is_free_again_only_without_relatives():
    occupied = Occupancy(["a/b"])
    assert [occupied.free(group) for group in ("a", "a/b", "a/b/c", "a/c", "b", "ab")] == [
        False, False, False, True, True, True,
    ]  # fmt: skip


def test_a_device_in_quarantine_takes_a_health_check_and_nothing_else():
    broken = DeviceSlot("d0", "a", quarantined=True)
    cell = WaitingCell("c", frozenset({"d0"}), rank=0, campaign_no=1, position=0)
    assert not broken.takes(cell)
    assert broken.takes(replace(cell, health=True))


def test_what_is_assigned_counts_as_given_for_the_rest_of_the_same_choice():
    both = frozenset({"d0", "d1"})
    waiting = [
        WaitingCell(f"{number}-{place}", both, rank=0, campaign_no=number, position=place, expected_s=10.0)
        for number in (1, 2)
        for place in (0, 1)
    ]
    shares = {number: Share(0.0, NOW) for number in (1, 2)}
    chosen = assign(waiting, [DeviceSlot("d0", "a"), DeviceSlot("d1", "b")], NOW, shares=shares)
    assert {assignment.cell_id for assignment in chosen} == {"1-0", "2-0"}


def test_users_share_the_devices_whatever_the_number_of_their_campaigns():
    """Three campaigns of one user and one of another: each user gets every second assignment."""
    waiting = [
        WaitingCell(f"{n}-{place}", frozenset({"d0"}), rank=0, campaign_no=n, position=place, expected_s=10.0)
        for n in (1, 2, 3, 4)
        for place in range(6)
    ]
    users = {1: "ana", 2: "ana", 3: "ana", 4: "bob"}
    shares = {number: Share(0.0, NOW, user) for number, user in users.items()}
    order = []
    while len(order) < 12:
        ((chosen,),) = (assign(waiting, [DeviceSlot("d0", "a")], NOW, shares=shares),)
        cell = next(cell for cell in waiting if cell.cell_id == chosen.cell_id)
        waiting.remove(cell)
        charge(shares, cell, NOW)
        order.append(cell.campaign_no)
    assert [users[number] for number in order] == ["ana", "bob"] * 6
    assert sorted(order) == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 4, 4], (
        "and one user's campaigns share what the user gets"
    )
