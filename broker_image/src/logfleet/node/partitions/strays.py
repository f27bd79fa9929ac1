"""Strays: logs that no partition of the image explains. They are renamed and kept for a person."""

import structlog

from logfleet.log.directories.log_dir import LogDir
from logfleet.log.directories.log_dirs import LogDirs
from logfleet.log.names import TopicPartition
from logfleet.metadata.image import ClusterImage
from logfleet.wire import uuids

log = structlog.get_logger(__name__)


def set_strays_aside(log_dirs: LogDirs, image: ClusterImage, node_id: int) -> None:
    """After loading: set aside each log that no topic of the image and no deletion explains.

    A log without a topic id (partition.metadata is missing, or a power loss left it empty) is from
    here on the log of the topic that has its name now, and of no later one: the id is made durable
    before this broker leads it, thus before anything is appended. Unlike in Kafka
    (TopicsImage.isStrayReplica) it may hold records, as before KIP-516 no log had an id.

    A directory fails if its disk refuses this (Kafka: LogManager.loadLogs). Raises LogDirRefused if
    no directory is left, or if a partition then still has two logs.
    """
    for log_dir in log_dirs:
        try:
            _set_strays_aside_in(log_dir, image, node_id)
        except OSError as error:
            log_dirs.fail_at_start(log_dir, error)
    log_dirs.refuse_none()
    log_dirs.refuse_duplicates()


def set_aside(log_dir: LogDir, name: TopicPartition, reason: str) -> None:
    """Keep the log under another name. Raises OSError: then it is still there."""
    log.warning("log_set_aside", partition=str(name), path=log_dir.set_aside(name), reason=reason)


def is_deleted(image: ClusterImage, node_id: int, topic_id: str | None) -> bool:
    """Whether the topic was deleted and this broker has not yet confirmed that its logs are gone.

    topic_id: as it stands in the log's partition.metadata.
    """
    return any(
        uuids.to_text(deleted.id) == topic_id and node_id in deleted.brokers
        for deleted in image.deleted.values()
    )


def _set_strays_aside_in(log_dir: LogDir, image: ClusterImage, node_id: int) -> None:
    for name, partition_log in list(log_dir.logs.items()):
        reason = _stray_reason(image, node_id, name, partition_log.topic_id)
        if reason is not None:
            set_aside(log_dir, name, reason)
        elif partition_log.topic_id is None:
            topic = image.topic(name.topic)
            assert topic is not None, "else it is a stray"
            partition_log.topic_id = uuids.to_text(topic.id)


def _stray_reason(
    image: ClusterImage, node_id: int, name: TopicPartition, topic_id: str | None
) -> str | None:
    if is_deleted(image, node_id, topic_id):
        return None
    topic = image.topic(name.topic)
    if topic is None:
        return "its topic does not exist"
    if topic_id not in {None, uuids.to_text(topic.id)}:
        return f"it belongs to topic id {topic_id}, not {uuids.to_text(topic.id)}"
    if name.partition >= len(topic.partitions):
        return "its topic has fewer partitions"
    if node_id not in topic.partitions[name.partition].replicas:
        return "it is assigned to other brokers"
    return None
