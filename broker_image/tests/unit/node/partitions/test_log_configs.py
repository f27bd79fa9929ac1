import msgspec
from logfleet.config.topic import BrokerLayers, topic_defaults, topic_values
from logfleet.log.config import LogConfig
from logfleet.metadata.image import ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kinds.topics import (
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    PartitionValue,
    ReadyValue,
    TopicValue,
)
from logfleet.metadata.store import KeyValue
from logfleet.node.partitions.log_configs import RECOVERY_THREADS_MAX, LogConfigs, log_config
from logfleet.records.batch import TimestampType
from logfleet.records.compression import Codec
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch
from logfleet.wire import uuids

DEFAULTS = topic_defaults(BrokerLayers())


def image_with(**values: object) -> ClusterImage:
    builder = ImageBuilder(ClusterImage())
    for number, (key, value) in enumerate(values.items()):
        builder.add(KeyValue(key, msgspec.json.encode(value), number + 1, number + 1, 1))
    return builder.build(len(values))[0]


def test_defaults_are_those_of_the_log() -> None:
    assert log_config(topic_values({}, DEFAULTS)) == LogConfig()


def test_every_key_of_a_log_can_be_set() -> None:
    overrides = {
        "segment.bytes": "1048576",
        "retention.ms": "-1",
        "cleanup.policy": "compact,delete",
        "compression.type": "zstd",
        "compression.zstd.level": "7",
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": "1000",
        "logfleet.record.validation": "full",
    }
    config = log_config(topic_values(overrides, DEFAULTS))
    assert config.segment_bytes == 1048576
    assert config.retention_ms == -1
    assert (config.compacts, config.deletes) == (True, True)
    assert (config.compression_type, config.compression_level) == (Codec.ZSTD, 7)
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.max_message_bytes == 1000
    assert config.validates_records


def test_codecs_without_levels_have_none() -> None:
    for name, codec in (("uncompressed", Codec.NONE), ("snappy", Codec.SNAPPY)):
        config = log_config(topic_values({"compression.type": name}, DEFAULTS))
        assert (config.compression_type, config.compression_level) == (codec, None)


def test_a_brokers_own_and_dynamic_values_are_defaults_of_its_topics() -> None:
    configs = LogConfigs(7, {"log.retention.hours": "1", "log.segment.bytes": "2097152"})
    image = image_with(
        **{
            "config/broker/default": {
                "log.segment.bytes": "3145728",
                "logfleet.record.validation": "full",
            },
            "config/broker/7": {"log.index.interval.bytes": "100"},
        }
    )
    config = configs.of(image, "unknown")
    assert config.retention_ms == 3_600_000
    assert config.validates_records
    assert config.segment_bytes == 3145728
    assert config.index_interval_bytes == 100
    assert configs.of(ClusterImage(), "unknown").segment_bytes == 2097152


def test_a_stored_value_that_no_log_can_obey_leaves_the_others_in_force() -> None:
    configs = LogConfigs(7, {"log.flush.interval.ms": "9"})
    image = image_with(
        **{
            "config/broker/default": {"log.flush.interval.ms": "-1", "log.retention.ms": "-2"},
            "config/broker/7": {"log.retention.ms": "0", "log.segment.bytes": "3145728"},
        }
    )
    config = configs.of(image, "unknown")
    assert (config.flush_ms, config.retention_ms, config.segment_bytes) == (9, -1, 3_145_728)


def test_a_topics_value_that_nothing_can_obey_counts_as_not_set_and_is_reported(capsys) -> None:
    topic_id = uuids.to_text(b"t" * 16)
    values = {"min.insync.replicas": "odd", "retention.ms": "5", "of another version": "?"}
    image = image_with(
        **{
            "topic/t": TopicValue(topic_id, values),
            f"tid/{topic_id}": "t",
            f"ready/{topic_id}": ReadyValue(0),
        }
    )
    assert image.topic("t") is not None
    assert LogConfigs(7, {}).of(image, "t").retention_ms == 5
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "ignored" in line]
    assert "min.insync.replicas" in told


def test_topics_are_distinguished_in_any_order() -> None:
    configs = LogConfigs(7, {})
    sizes = {"a": 1_048_576, "b": 2_097_152}
    values: dict[str, object] = {}
    for number, (name, size) in enumerate(sizes.items(), start=1):
        uuid = uuids.to_text(number.to_bytes(16, "big"))
        overrides = {"segment.bytes": str(size)}
        values |= {
            TOPIC.key(name): TopicValue(uuid, overrides),
            TOPIC_ID.key(uuids.from_text(uuid)): name,
            READY.key(uuids.from_text(uuid)): ReadyValue(1),
            PARTITION.key((uuids.from_text(uuid), 0)): PartitionValue(
                (1,), ((1, BrokerEpoch(5)),), 1, LeaderEpoch(0), PartitionEpoch(0), 1
            ),
        }
    image = image_with(**values)
    for name in ("a", "a", "b", "a"):
        assert configs.of(image, name).segment_bytes == sizes[name]
    assert configs.of(image, "unknown") == LogConfig()
    other = image_with(**{"config/broker/default": {"log.segment.bytes": "3145728"}})
    assert configs.of(other, "unknown").segment_bytes == 3_145_728


def test_recovery_threads_are_those_in_force_and_never_too_many() -> None:
    key = "num.recovery.threads.per.data.dir"

    def threads(static: dict[str, str], image: ClusterImage) -> int:
        return LogConfigs(1, static).recovery_threads(image)

    assert threads({}, ClusterImage()) == 2
    assert threads({key: "7"}, ClusterImage()) == 7
    image = image_with(**{"config/broker/default": {key: "3"}, "config/broker/2": {key: "4"}})
    assert threads({key: "7"}, image) == 3
    assert threads({key: "2147483647"}, ClusterImage()) == RECOVERY_THREADS_MAX
