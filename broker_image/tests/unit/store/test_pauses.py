from logfleet.store.pauses import GrowingPause


def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    pause = GrowingPause((1.0, 6.0))
    assert [pause.next_s() for _ in range(5)] == [1.0, 2.0, 4.0, 6.0, 6.0]
