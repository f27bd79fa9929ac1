from logfleet.types import FILE_START, BrokerEpoch, LeaderEpoch, Offset, Position


def test_at_run_time_each_is_an_int_so_that_reading_one_costs_nothing() -> None:
    numbers: list[int] = [Offset(7), Position(8), LeaderEpoch(9), BrokerEpoch(10), FILE_START + 61]
    assert {type(number) for number in numbers} == {int}
    assert numbers == [7, 8, 9, 10, 61]
