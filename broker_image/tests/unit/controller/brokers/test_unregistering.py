import pytest
from logfleet.controller.brokers.cordons import CORDONED, is_cordoned
from logfleet.controller.brokers.unregistering import unregister
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.changes.topics import delete_topic
from logfleet.metadata.kinds.brokers import BROKER, DIRECTORIES, BrokerValue, DirectoriesValue
from logfleet.metadata.kinds.configs import BROKER_CONFIG
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal


def forget(cluster, broker_id: int) -> None:
    steps = unregister(cluster.image, broker_id)
    assert not isinstance(steps, Refusal), steps
    for txn in pack(cluster.epoch, steps):
        assert cluster.commit(txn)


def test_a_broker_that_was_stopped_is_forgotten_and_may_come_back(cluster):
    cluster.start(1, 2)
    cluster.put(DIRECTORIES.key(2), DirectoriesValue(("disk",)))
    cluster.stop(2)
    forget(cluster, 2)
    assert set(cluster.image.fences) == {1}
    assert cluster.image.directories == {}
    cluster.start(2)
    assert cluster.image.brokers[2].is_active


@pytest.mark.parametrize("others", [{}, {"log.cleaner.threads": "2"}])
def test_its_cordon_is_forgotten_with_it(cluster, others):
    cluster.start(1, 2)
    cluster.put(BROKER_CONFIG.key(2), {CORDONED: "*", **others})
    cluster.stop(2)
    forget(cluster, 2)
    cluster.start(2)
    assert cluster.image.configs_of_broker(2).values == others
    assert not is_cordoned(cluster.image, 2)


@pytest.mark.parametrize(
    "broker_id, error, says",
    [
        (1, ErrorCode.INVALID_REQUEST, "running"),
        (2, ErrorCode.INVALID_REQUEST, "a replica of t-0"),
        (3, ErrorCode.BROKER_ID_NOT_REGISTERED, "Broker ID 3 is not currently registered."),
    ],
)
def test_it_is_refused_for_a_broker_that(cluster, broker_id, error, says):
    cluster.start(2)
    cluster.create("t")
    cluster.stop(2)
    cluster.start(1)
    refusal = unregister(cluster.image, broker_id)
    assert isinstance(refusal, Refusal)
    assert refusal.error == error
    assert says in refusal.message


def test_deleted_topics_wait_for_it_no_longer(cluster):
    cluster.start(1, 2)
    cluster.create("t", partitions=2)
    cluster.stop(2)
    assert cluster.commit(delete_topic(cluster.epoch, cluster.topic("t")))
    (deleted,) = cluster.image.deleted.values()
    assert deleted.brokers == (1, 2)
    forget(cluster, 2)
    (deleted,) = cluster.image.deleted.values()
    assert deleted.brokers == (1,)


def test_a_broker_that_comes_back_meanwhile_stays(cluster):
    cluster.start(1, 2)
    cluster.stop(2)
    steps = unregister(cluster.image, 2)
    assert not isinstance(steps, Refusal)
    (late,) = pack(cluster.epoch, steps)
    cluster.put(BROKER.key(2), BrokerValue("i2", ()))
    assert not cluster.commit(late)
