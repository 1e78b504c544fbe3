from hypothesis import given
from hypothesis import strategies as st

from runtime.delegates.opencl.memory import Request, plan_memory


@st.composite
def requests(draw):
    count = draw(st.integers(0, 25))
    found = []
    for key in range(count):
        first = draw(st.integers(-1, 20))
        found.append(Request(key, draw(st.integers(1, 5000)), first, first + draw(st.integers(0, 8))))
    return found


@given(requests())
def test_no_two_live_buffers_share_an_element(wanted):
    plan = plan_memory(wanted)
    for a in wanted:
        for b in wanted:
            if a.key < b.key and a.overlaps(b):
                apart = plan.offsets[a.key] + a.elements <= plan.offsets[b.key]
                assert apart or plan.offsets[b.key] + b.elements <= plan.offsets[a.key]


@given(requests())
def test_offsets_are_aligned_and_inside_the_arena(wanted):
    plan = plan_memory(wanted, alignment=16)
    assert set(plan.offsets) == {request.key for request in wanted}
    for request in wanted:
        assert plan.offsets[request.key] % 16 == 0
        assert 0 <= plan.offsets[request.key] <= plan.elements - request.elements


@given(requests())
def test_arena_is_at_most_the_sum_and_at_least_the_peak(wanted):
    plan = plan_memory(wanted, alignment=1)
    alive = [sum(r.elements for r in wanted if r.first <= step <= r.last) for step in range(-1, 30)]
    assert max(alive, default=0) <= plan.elements <= sum(r.elements for r in wanted)


def test_buffers_that_never_meet_share_memory():
    plan = plan_memory([Request("a", 64, 0, 1), Request("b", 64, 2, 3), Request("c", 64, 4, 5)])
    assert plan.elements == 64
