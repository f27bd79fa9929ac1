"""What the one topic of a simulation and its partitions are called.

The topic may be deleted and made again under its name, with another topic id: each time it is the
next generation. A partition has a number, which is another one in each generation; in the first it
is its index.
"""

from collections.abc import Iterator

from logfleet.metadata.image import ClusterImage, Partition
from logfleet.metadata.kinds.topics import PARTITION

TOPIC = "t"
PARTITIONS_MAX = 100


def topic_id(generation: int) -> bytes:
    return bytes(15) + bytes([1 + generation])


def number(of_topic: bytes, index: int) -> int:
    """The number of a partition, by the id of its topic."""
    return PARTITIONS_MAX * (of_topic[-1] - 1) + index


def index_of(partition: int) -> int:
    return partition % PARTITIONS_MAX


def topic_of(partition: int) -> bytes:
    return topic_id(partition // PARTITIONS_MAX)


def key_of(partition: int) -> str:
    """In the store."""
    return PARTITION.key((topic_of(partition), index_of(partition)))


def numbered(image: ClusterImage) -> Iterator[tuple[int, Partition]]:
    """Of the topic that the image has, if it has one, the partitions by number."""
    topic = image.topic(TOPIC)
    if topic is not None:
        for index, partition in enumerate(topic.partitions):
            yield number(topic.id, index), partition


def named(image: ClusterImage, index: int) -> int:
    """The number of the topic's partition of that index; -1 if the image has no such topic."""
    topic = image.topic(TOPIC)
    return -1 if topic is None else number(topic.id, index)
