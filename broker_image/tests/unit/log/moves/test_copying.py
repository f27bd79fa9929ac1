import pytest
from logfleet.log.moves.copying import Extent, is_prefix
from logfleet.replication.leader_epochs import EpochStart, LeaderEpochs


def extent(start, end, *epochs):
    return Extent(start, end, LeaderEpochs(tuple(EpochStart(*each) for each in epochs)))


LOG = extent(10, 100, (1, 0), (4, 50))


@pytest.mark.parametrize(
    "copy, log, was_cut, expected",
    [
        (extent(10, 60, (1, 10), (4, 50)), LOG, False, True),
        (extent(0, 60, (1, 0), (4, 50)), LOG, False, True),  # old records went meanwhile
        (extent(10, 100, (1, 10), (4, 50)), LOG, False, True),
        (extent(11, 60, (1, 11), (4, 50)), LOG, False, False),  # its beginning is missing
        (extent(0, 9, (1, 0)), LOG, False, False),  # there is a gap between the two
        (extent(10, 101, (1, 10), (4, 50)), LOG, False, False),  # the log is shorter
        (extent(10, 10), LOG, True, True),
        (extent(10, 60, (1, 10), (4, 50)), LOG, True, True),
        (extent(10, 50, (1, 10)), LOG, True, True),
        (extent(10, 60, (1, 10)), LOG, True, False),  # cut at 50, written again in epoch 4
        (extent(10, 60, (1, 10), (3, 40)), LOG, True, False),  # no batch of epoch 3 is left
        (extent(10, 60, (1, 10), (5, 55)), LOG, True, False),
        (extent(10, 60, (-1, 10)), LOG, True, False),  # batches without epochs tell nothing
    ],
)
def test_a_copy_is_continued_if_it_is_a_prefix_of_the_log(copy, log, was_cut, expected) -> None:
    assert is_prefix(copy, log, was_cut=was_cut) is expected
