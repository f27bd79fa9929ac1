from logfleet.telemetry.identity import identity


def test_a_broker_of_another_cluster_is_another_broker() -> None:
    assert identity("c", 1) == "c/1"
    assert len({identity("c", 1), identity("d", 1), identity("c", 2), identity("", 1)}) == 4
