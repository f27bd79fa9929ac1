from logfleet.client.metadata import AGE_MS_MAX, DOUBTED_AGE_MS_MAX, Metadata, Node
from logfleet.wire.messages import MetadataResponse

TOPIC = MetadataResponse.MetadataResponseTopic(
    name="t",
    topic_id=b"1" * 16,
    partitions=[
        MetadataResponse.MetadataResponsePartition(partition_index=1, leader_id=4),
        MetadataResponse.MetadataResponsePartition(partition_index=0, leader_id=5),
    ],
)
BROKER = MetadataResponse.MetadataResponseBroker(node_id=4, host="h", port=9, rack="a")


def learnt(now: float) -> Metadata:
    metadata = Metadata()
    failed = MetadataResponse.MetadataResponseTopic(name="gone", error_code=3)
    answer = MetadataResponse(cluster_id="c", brokers=[BROKER], topics=[TOPIC, failed])
    assert [topic.name for topic in metadata.update(answer, now)] == ["t"]
    return metadata


def test_partitions_stand_in_the_order_of_their_index() -> None:
    topic = learnt(5).topic("t", 5)
    assert topic is not None
    assert [partition.index for partition in topic.partitions] == [0, 1]
    second = topic.partition(1)
    assert second is not None
    assert second.leader == 4
    assert topic.partition(2) is None
    assert topic.partition(-1) is None


def test_what_is_old_or_forgotten_is_not_there() -> None:
    metadata = learnt(5)
    assert metadata.topic("t", 5 + AGE_MS_MAX / 1000) is None
    assert metadata.topic("t", 4.9 + AGE_MS_MAX / 1000) is not None
    metadata.forget(["t", "never heard of"])
    assert metadata.topic("t", 5) is None
    assert metadata.topic("gone", 5) is None


def test_what_is_doubted_is_there_until_the_next_attempt() -> None:
    metadata = learnt(5)
    metadata.doubt(["t", "never heard of"])
    attempt = 5.001 + DOUBTED_AGE_MS_MAX / 1000
    assert metadata.topic("t", 5) is not None
    assert metadata.topic("t", attempt) is None
    assert metadata.topic("never heard of", 5) is None
    metadata.update(MetadataResponse(topics=[TOPIC]), attempt)
    assert metadata.topic("t", attempt + 1) is not None


def test_brokers_are_those_of_the_last_answer() -> None:
    metadata = learnt(5)
    assert metadata.nodes[4].rack == "a"
    metadata.update(MetadataResponse(brokers=[]), 6)
    assert metadata.nodes == {}
    assert metadata.topic("t", 6) is not None


def test_an_address_that_is_learnt_leaves_the_rack_and_other_brokers_as_they_are() -> None:
    metadata = learnt(0)
    metadata.learn(Node(4, "elsewhere", 10))
    metadata.learn(Node(5, "new", 11))
    assert metadata.nodes == {4: Node(4, "elsewhere", 10, "a"), 5: Node(5, "new", 11)}
