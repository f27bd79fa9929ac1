from hypothesis import given
from hypothesis import strategies as st
from logfleet.log.newest_batches import BOUNDARIES_KEPT, RecentBatches
from logfleet.types import Position


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(61, 300)), max_size=600),
    st.integers(0, 2000),
    st.integers(0, 100_000),
)
def test_recent_boundaries_are_those_of_the_whole_list_or_unknown(batches, offset, position):
    recent = RecentBatches(100, Position(1000))
    boundaries = [(100, Position(1000))]
    for count, size in batches:
        boundaries.append((boundaries[-1][0] + count, boundaries[-1][1] + size))
        recent.add(*boundaries[-1])
    expected_position = max((p for o, p in boundaries if o <= offset), default=None)
    expected_boundary = max((p for _, p in boundaries if p <= position), default=None)
    assert recent.position_of(offset) in (expected_position, None)
    assert recent.boundary_before(position) in (expected_boundary, None)
    newest = boundaries[-BOUNDARIES_KEPT:]
    assert recent.position_of(newest[0][0]) == newest[0][1]
    assert recent.boundary_before(newest[0][1]) == newest[0][1]
    assert recent.position_of(10**9) == boundaries[-1][1]
    assert len(recent._offsets) <= 2 * BOUNDARIES_KEPT
