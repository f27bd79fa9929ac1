import pytest
from logfleet.sessions import followers
from logfleet.sessions.fetch_session import FetchSession
from logfleet.sessions.followers import FollowerFetches
from logfleet.types import BrokerEpoch, LeaderEpoch
from logfleet.wire.messages import FetchRequest

KEY = (bytes(range(16)), 4)
EPOCH = LeaderEpoch(7)


def asked(leader_epoch: int = EPOCH) -> FetchRequest.FetchPartition:
    return FetchRequest.FetchPartition(
        partition=KEY[1], current_leader_epoch=LeaderEpoch(leader_epoch)
    )


def session() -> FetchSession:
    made = FetchSession(1, by_id=True, privileged=True, now_ms=0)
    made.add(KEY, asked())
    return made


def fetched(by: FetchSession | None) -> FollowerFetches:
    """Broker 2, registered as 20, has fetched at 1,000 ms."""
    fetches = FollowerFetches()
    fetches.fetched(2, BrokerEpoch(20), by, {KEY: asked()} if by is None else {}, 1_000)
    return fetches


def test_a_fetch_says_that_all_partitions_of_its_session_are_followed() -> None:
    assert fetched(session()).follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=1_000)


def test_a_fetch_without_a_session_says_so_of_what_it_names() -> None:
    fetches = fetched(None)
    assert fetches.follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=1_000)
    assert not fetches.follows(2, BrokerEpoch(20), (KEY[0], 5), EPOCH, since_ms=1_000)


def test_an_old_fetch_says_nothing() -> None:
    assert not fetched(session()).follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=1_001)


def test_another_registration_of_the_broker_is_not_meant() -> None:
    fetches = fetched(session())
    assert not fetches.follows(2, BrokerEpoch(21), KEY, EPOCH, since_ms=0)
    assert not fetches.follows(3, BrokerEpoch(20), KEY, EPOCH, since_ms=0)


def test_a_follower_in_another_leader_epoch_does_not_follow_this_leader() -> None:
    assert not fetched(session()).follows(
        2, BrokerEpoch(20), KEY, LeaderEpoch(EPOCH - 1), since_ms=0
    )


def test_a_partition_that_was_taken_out_of_the_session_is_not_followed() -> None:
    """So does a broker that has heard that it leads, or that another broker does."""
    by = session()
    fetches = fetched(by)
    by.update({}, [KEY])
    assert not fetches.follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=0)


def test_what_a_follower_named_lately_it_follows_though_it_was_refused_since() -> None:
    by = session()
    fetches = fetched(by)
    by.update({}, [KEY])
    fetches.fetched(2, BrokerEpoch(20), by, {KEY: asked()}, 2_000)
    fetches.fetched(2, BrokerEpoch(20), by, {}, 2_500)
    assert fetches.follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=2_000)
    assert not fetches.follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=2_001)


def test_names_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "NAMED_MAX", 1)
    fetches = FollowerFetches()
    for number in range(10):
        key = (KEY[0], number)
        fetches.fetched(2, BrokerEpoch(20), None, {key: asked()}, number * followers.NAMED_FOR_MS)
    assert len(fetches._contacts[2].named) <= 3


def test_a_session_that_was_closed_says_nothing() -> None:
    by = session()
    fetches = fetched(by)
    by.close()
    assert not fetches.follows(2, BrokerEpoch(20), KEY, EPOCH, since_ms=0)
