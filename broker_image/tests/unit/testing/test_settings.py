import pytest
from logfleet.config.broker import broker_config
from logfleet.testing.settings import FSYNC_VARIABLE, broker_settings, is_synced, racks, replication


@pytest.mark.parametrize("brokers, replicas, min_isr", [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_writes_survive_the_loss_of_one_broker_where_there_are_three(
    brokers: int, replicas: int, min_isr: int
) -> None:
    keys = replication(brokers)
    assert {keys[key] for key in keys if "replication.factor" in key} == {str(replicas)}
    assert keys["min.insync.replicas"] == keys["transaction.state.log.min.isr"] == str(min_isr)


def test_zones_are_given_in_turn() -> None:
    assert racks(["a", "b"], 3) == ["a", "b", "a"]
    assert racks([], 2) == [None, None]


def test_every_key_has_an_effect_on_a_broker() -> None:
    config = broker_config(broker_settings(2, 9092, "data", brokers=3, rack="a"))
    assert (config.node_id, config.broker_rack, config.default_replication_factor) == (2, "a", 3)
    assert (config.unknown, config.without_effect) == ((), ())
    assert config.group_initial_rebalance_delay_ms == 0


@pytest.mark.parametrize("value, expected", [("", 0), ("0", 0), ("1", 1)])
def test_brokers_wait_for_the_disk_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: int
) -> None:
    monkeypatch.delenv(FSYNC_VARIABLE, raising=False)
    assert not is_synced()
    monkeypatch.setenv(FSYNC_VARIABLE, value)
    assert is_synced() == bool(expected)
