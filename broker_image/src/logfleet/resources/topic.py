"""The Topic resource: one topic of one Cluster.

Use `parse_topic`: what it returns is valid, so nobody checks again. `crds/topics.yaml` has the same
limits, which the Kubernetes API server enforces at apply.
"""

import re
from typing import Final, Literal

import msgspec

from logfleet.resources.document import (
    InvalidResourceError,
    Metadata,
    Problem,
    config_values,
    decode,
)
from logfleet.resources.limits import PARTITIONS_MAX, REPLICAS_MAX

KIND: Final = "Topic"
TOPIC_NAME_LENGTH_MAX: Final = 249  # Kafka: Topic.MAX_NAME_LENGTH
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
)
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")  # Kafka: Topic.LEGAL_CHARS

DeletionPolicy = Literal["Delete", "Retain"]


class ClusterRef(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The Cluster, in the same namespace, that the topic belongs to."""

    name: str


class TopicSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The desired state in a user's resource.

    topic_name: None means the resource's own name (Kafka allows characters that Kubernetes does
    not). replicas: None means the brokers' default.replication.factor. config: every topic key that
    differs from the brokers' defaults; a key that is set on the topic and missing here is removed.
    """

    cluster_ref: ClusterRef
    topic_name: str | None = None
    partitions: int = 1
    replicas: int | None = None
    config: dict[str, str | int] = {}
    deletion_policy: DeletionPolicy = "Delete"


class TopicResource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole Topic document."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: TopicSpec
    status: dict[str, object] | None = None

    @property
    def name(self) -> str:
        """The topic's name in Kafka."""
        return self.spec.topic_name or self.metadata.name

    @property
    def config(self) -> dict[str, str]:
        """The wanted topic-level configuration, values as strings."""
        return config_values(self.spec.config)


def parse_topic(document: object) -> TopicResource:
    """Return the Topic that `document` (a mapping as YAML gives it) describes.

    Raises InvalidResourceError naming every field that is wrong and what to write.
    """
    topic = decode(document, KIND, TopicResource)
    problems = [
        *topic_name_problems(topic),
        *_count_problems("spec.partitions", topic.spec.partitions, PARTITIONS_MAX),
    ]
    if topic.spec.replicas is not None:
        problems += _count_problems("spec.replicas", topic.spec.replicas, REPLICAS_MAX)
    if not topic.spec.cluster_ref.name:
        problems.append(Problem("spec.clusterRef.name", "is empty, write a Cluster's name"))
    if problems:
        raise InvalidResourceError(problems)
    return topic


def topic_name_problems(topic: TopicResource) -> list[Problem]:
    """Check Kafka's rules for topic names (Topic.validate), and names that brokers reserve."""
    name = topic.name
    path = "metadata.name" if topic.spec.topic_name is None else "spec.topicName"
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        return [
            Problem(path, f"{name!r} is not a topic name: use letters, digits, '.', '_' and '-'")
        ]
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return [Problem(path, f"has {len(name)} characters, at most {TOPIC_NAME_LENGTH_MAX} fit")]
    if name in INTERNAL_TOPICS:
        return [Problem(path, f"{name} is reserved for the brokers, choose another name")]
    return []


def _count_problems(path: str, count: int, most: int) -> list[Problem]:
    if 1 <= count <= most:
        return []
    return [Problem(path, f"is {count}, write a number from 1 to {most}")]
