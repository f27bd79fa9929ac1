from logfleet.types import FILE_START, BrokerEpoch, LeaderEpoch, Offset, Position


def test_at_run_time_each_is_the_number_itself_so_that_a_conversion_costs_nothing_to_read() -> None:
    for make in (Offset, Position, LeaderEpoch, BrokerEpoch):
        assert type(make(7)) is int
        assert make(7) == 7
    assert type(FILE_START + 61) is int
