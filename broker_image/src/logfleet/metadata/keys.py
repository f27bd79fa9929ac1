"""Short names of the keys and values of the metadata store, for code that writes or compares them.

`logfleet.metadata.kinds` declares them. A kind needs no name here: its own methods do as well.
UUID is Kafka's text form of a topic id. Every write of the controller compares the create revision
of CONTROLLER.
"""

from typing import Final

import msgspec

from logfleet.metadata.kinds import brokers, cluster, configs, producer_ids, quotas, topics
from logfleet.metadata.kinds.brokers import (
    ACTIVE,
    DRAINING,
    FENCED,
    BrokerValue,
    DirectoriesValue,
    Endpoint,
    FenceValue,
    SuspectValue,
)
from logfleet.metadata.kinds.cluster import ControllerValue, FeaturesValue
from logfleet.metadata.kinds.configs import CLUSTER_DEFAULT, ConfigValue
from logfleet.metadata.kinds.quotas import QuotaEntity, QuotaValue
from logfleet.metadata.kinds.topics import (
    NO_LEADER,
    DeletedValue,
    PartitionValue,
    ReadyValue,
    TopicValue,
)

CLUSTER_ID: Final = cluster.CLUSTER_ID.prefix
FEATURES: Final = cluster.FEATURES.prefix
CONTROLLER: Final = cluster.CONTROLLER.prefix
RECEIPTS: Final = cluster.RECEIPT.prefix
BROKERS: Final = brokers.BROKER.prefix
FENCES: Final = brokers.FENCE.prefix
SUSPECTS: Final = brokers.SUSPECT.prefix
DIRECTORIES: Final = brokers.DIRECTORIES.prefix
TOPICS: Final = topics.TOPIC.prefix
TOPIC_IDS: Final = topics.TOPIC_ID.prefix
PARTITIONS: Final = topics.PARTITION.prefix
READY: Final = topics.READY.prefix
DELETED: Final = topics.DELETED.prefix
BROKER_CONFIGS: Final = configs.BROKER_CONFIG.prefix
GROUP_CONFIGS: Final = configs.GROUP_CONFIG.prefix
QUOTAS: Final = quotas.QUOTA.prefix
NEXT_PRODUCER_ID: Final = producer_ids.NEXT_PRODUCER_ID.prefix

broker: Final = brokers.BROKER.key
fence: Final = brokers.FENCE.key
directories: Final = brokers.DIRECTORIES.key
suspects: Final = brokers.suspects_of
receipts: Final = cluster.receipts_of
topic: Final = topics.TOPIC.key
broker_config: Final = configs.BROKER_CONFIG.key
group_config: Final = configs.GROUP_CONFIG.key
quota: Final = quotas.QUOTA.key


def suspect(broker_id: int, reporter: int) -> str:
    return brokers.SUSPECT.key((broker_id, reporter))


def receipt(broker_id: int, slot: int) -> str:
    return cluster.RECEIPT.key((broker_id, slot))


def topic_id(uuid: str) -> str:
    return f"{TOPIC_IDS}{uuid}"


def partitions(uuid: str) -> str:
    """Prefix of all partitions of a topic."""
    return f"{PARTITIONS}{uuid}/"


def partition(uuid: str, index: int) -> str:
    return f"{PARTITIONS}{uuid}/{index}"


def ready(uuid: str) -> str:
    return f"{READY}{uuid}"


def deleted(uuid: str) -> str:
    return f"{DELETED}{uuid}"


encode = msgspec.json.Encoder().encode

__all__ = [
    "ACTIVE",
    "BROKERS",
    "BROKER_CONFIGS",
    "CLUSTER_DEFAULT",
    "CLUSTER_ID",
    "CONTROLLER",
    "DELETED",
    "DIRECTORIES",
    "DRAINING",
    "FEATURES",
    "FENCED",
    "FENCES",
    "GROUP_CONFIGS",
    "NEXT_PRODUCER_ID",
    "NO_LEADER",
    "PARTITIONS",
    "QUOTAS",
    "READY",
    "RECEIPTS",
    "SUSPECTS",
    "TOPICS",
    "TOPIC_IDS",
    "BrokerValue",
    "ConfigValue",
    "ControllerValue",
    "DeletedValue",
    "DirectoriesValue",
    "Endpoint",
    "FeaturesValue",
    "FenceValue",
    "PartitionValue",
    "QuotaEntity",
    "QuotaValue",
    "ReadyValue",
    "SuspectValue",
    "TopicValue",
    "broker",
    "broker_config",
    "deleted",
    "directories",
    "encode",
    "fence",
    "group_config",
    "partition",
    "partitions",
    "quota",
    "ready",
    "receipt",
    "receipts",
    "suspect",
    "suspects",
    "topic",
    "topic_id",
]
