import msgspec
import pytest
from logfleet.controller.brokers.stop_check import NO_LEADER_LEFT, TOO_FEW_LEFT
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.keyspace import Keyspace
from logfleet.metadata.kinds.brokers import ACTIVE, BROKER, FENCE, BrokerValue, FenceValue
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import Put, Txn
from logfleet.node.decisions.may_i_answer import NAMED_MAX, WrongMayIRequest, answer
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids


def image(
    *topics: tuple[str, int, tuple[int, ...], int], behind: tuple[str, int] = ("", 0)
) -> ClusterImage:
    """Brokers 1 to 3 in the zones a to c; all replicas but one are in sync.

    topics: name, min.insync.replicas, replicas, partitions.
    """
    space = Keyspace()
    builder = ImageBuilder(ClusterImage())

    def put(key: str, value: object) -> int:
        data = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
        _, batch = space.evaluate(Txn(success=(Put(key, data),)))
        assert batch is not None
        space.apply(batch)
        for event in batch.events:
            builder.add(event)
        return batch.revision

    epochs = {}
    for broker, zone in ((1, "a"), (2, "b"), (3, "c")):
        epochs[broker] = put(BROKER.key(broker), BrokerValue("i", (), zone))
        put(FENCE.key(broker), FenceValue(BrokerEpoch(epochs[broker]), ACTIVE))
    for number, (name, min_isr, replicas, count) in enumerate(topics):
        uuid = uuids.to_text(bytes([number + 1]) * 16)
        isr = tuple(
            (each, BrokerEpoch(epochs[each])) for each in replicas if (name, each) != behind
        )
        put(TOPIC.key(name), TopicValue(uuid))
        put(TOPIC_ID.key(uuids.from_text(uuid)), name)
        for index in range(count):
            state = PartitionValue(
                replicas, isr, replicas[0], LeaderEpoch(0), PartitionEpoch(0), min_isr
            )
            put(PARTITION.key((uuids.from_text(uuid), index)), state)
        put(READY.key(uuids.from_text(uuid)), ReadyValue(count))
    return builder.build(1_000)[0]


def test_yes_comes_with_what_would_lack_replicas() -> None:
    found = answer(image(("t", 2, (1, 2, 3), 2), ("u", 1, (1, 3), 1)), ["2"], [])
    assert msgspec.to_builtins(found) == {
        "may": True,
        "brokers": [2],
        "forbidden": [],
        "forbidden_count": 0,
        "curable_count": 0,
        "under_replicated": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
        "under_replicated_count": 2,
    }


def test_no_names_the_first_partitions_with_their_rules_and_counts_all() -> None:
    found = answer(image(("t", 2, (1, 2, 3), NAMED_MAX + 5), ("u", 1, (1, 3), 1)), ["2", "1"], [])
    assert not found.may
    assert found.brokers == [1, 2]
    assert (len(found.forbidden), found.forbidden_count) == (NAMED_MAX, NAMED_MAX + 5)
    assert (found.forbidden[0].topic, found.forbidden[0].rule) == ("t", TOO_FEW_LEFT)
    assert found.under_replicated_count == NAMED_MAX + 6


def test_what_waiting_may_cure_is_named_first() -> None:
    topics = ("alone", 1, (2,), NAMED_MAX + 5), ("t", 2, (1, 2, 3), 1)
    found = answer(image(*topics, behind=("t", 3)), ["2"], [])
    assert (found.forbidden[0].topic, found.forbidden[0].can_heal) == ("t", True)
    assert (found.forbidden_count, found.curable_count) == (NAMED_MAX + 6, 1)


def test_a_zone_is_all_its_brokers() -> None:
    found = answer(image(("t", 1, (2,), 1)), [], ["b"])
    (forbidden,) = found.forbidden
    assert (found.brokers, forbidden.rule, forbidden.can_heal) == ([2], NO_LEADER_LEFT, False)


@pytest.mark.parametrize(
    "stop, zones, words",
    [
        (["9"], [], "no broker 9 is registered; there are 1, 2, 3"),
        (["two"], [], "no broker two is registered; there are 1, 2, 3"),
        ([], ["z"], "no broker is in zone z; there are a, b, c"),
        ([], [], "name the brokers to go down: stop=ID or lose-zone=ZONE"),
    ],
)
def test_a_request_without_brokers_lists_those_that_exist(
    stop: list[str], zones: list[str], words: str
) -> None:
    with pytest.raises(WrongMayIRequest, match=words):
        answer(image(), stop, zones)
