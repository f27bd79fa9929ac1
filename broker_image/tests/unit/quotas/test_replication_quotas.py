import pytest
from logfleet.config.throttle_keys import Side
from logfleet.quotas.rates import Windows
from logfleet.quotas.replication_quotas import UNLIMITED, ReplicationQuota

MIB = 1024 * 1024


def quota(rate: int = UNLIMITED, side: Side = Side.LEADER) -> ReplicationQuota:
    made = ReplicationQuota(side, 2, Windows(2, 1_000))
    made.rate = rate
    return made


@pytest.mark.parametrize(
    "replicas, partitions",
    [
        ("", []),
        ("*", [0, 1, 2, 3]),
        ("0:2", [0]),
        ("0:1,1:2,2:3", [1]),
        (" 0:2 , 3:2 ", [0, 3]),
        (" * ", [0, 1, 2, 3]),
        ("0:2,everything", []),
        (f"0:2,1:{'2' * 5_000}", []),
    ],
)
def test_partitions_are_named_with_the_broker_whose_replica_is_meant(replicas, partitions):
    configs = {"leader.replication.throttled.replicas": replicas}
    assert [each for each in range(4) if quota().concerns(configs, each)] == partitions
    assert not quota(side=Side.FOLLOWER).concerns(configs, 0), "each side has a list of its own"


def test_without_a_rate_nothing_waits():
    unlimited = quota()
    unlimited.record(100 * MIB, 0)
    assert not unlimited.is_limited
    assert unlimited.throttle_ms(0) == 0


def test_who_has_used_up_the_rate_waits_until_the_windows_have_it_again():
    limited = quota(MIB)
    limited.record(MIB, 0)
    assert limited.throttle_ms(0) == 0, "what the rate allows in the first window"
    limited.record(MIB, 0)
    assert limited.bytes == 2 * MIB
    assert limited.throttle_ms(0) == 1_000
    assert limited.throttle_ms(2_000) == 0


def test_a_rate_that_is_raised_frees_at_once():
    limited = quota(MIB)
    limited.record(20 * MIB, 0)
    assert limited.throttle_ms(0) > 0
    limited.rate = 100 * MIB
    assert limited.throttle_ms(0) == 0


def test_a_rate_of_zero_lets_nothing_through():
    stopped = quota(0)
    assert stopped.throttle_ms(0) == stopped.throttle_ms(60_000) == 1_000


def test_a_follower_is_not_ahead_of_its_rate_by_more_than_a_moment():
    """Kafka lets through what all windows allow at once, which producers feel."""
    limited = quota(MIB, Side.FOLLOWER)
    limited.record(MIB // 10, 0)
    assert limited.throttle_ms(0) == 50
    assert limited.throttle_ms(40) == 10
    assert limited.throttle_ms(50) == 0
    limited.record(MIB // 10, 50)
    assert limited.throttle_ms(50) == 100


def test_a_follower_makes_up_for_a_second_at_most():
    limited = quota(MIB, Side.FOLLOWER)
    for _ in range(100):
        limited.record(MIB // 100, 0)
    assert limited.throttle_ms(0) == 950


def test_what_is_in_force_is_a_share_of_the_rate():
    limited = quota(MIB, Side.FOLLOWER)
    limited.factor = 0.5
    limited.record(MIB // 10, 0)
    assert limited.throttle_ms(0) == 150


def test_all_copies_between_log_directories_count_against_one_rate() -> None:
    quota = ReplicationQuota(Side.LOG_DIRS, 1, Windows(11, 1000))
    assert quota.concerns({}, 0)
    assert quota.throttle_ms(0) == 0
    quota.rate = 1000
    quota.record(3000, 0)
    assert quota.throttle_ms(0) > 0
    assert quota.throttle_ms(60_000) == 0
