"""Each kind that is stored: its bytes, which no version may change, and what the image makes of them."""

from typing import Any

import msgspec
import pytest
from logfleet.metadata.image import FIELDS, ClusterImage
from logfleet.metadata.image_builder import ImageBuilder
from logfleet.metadata.kind import Kind, Rows, Single
from logfleet.metadata.kinds.brokers import (
    BROKER,
    DIRECTORIES,
    FENCE,
    SUSPECT,
    BrokerValue,
    DirectoriesValue,
    Endpoint,
    FenceValue,
    SuspectValue,
)
from logfleet.metadata.kinds.cluster import (
    CLUSTER_ID,
    CONTROLLER,
    FEATURES,
    RECEIPT,
    ControllerValue,
    FeaturesValue,
)
from logfleet.metadata.kinds.configs import BROKER_CONFIG, GROUP_CONFIG
from logfleet.metadata.kinds.producer_ids import NEXT_PRODUCER_ID
from logfleet.metadata.kinds.quotas import QUOTA, QuotaEntity
from logfleet.metadata.kinds.topics import (
    DELETED,
    ENTRIES,
    IDS,
    PARTITION,
    READY,
    TOPIC,
    TOPIC_ID,
    UNFINISHED,
    DeletedValue,
    PartitionValue,
    ReadyValue,
    TopicValue,
    partitions_of,
)
from logfleet.metadata.registry import KINDS
from logfleet.metadata.store import Deleted, KeyValue, Put
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch

ID = bytes(range(16))
UUID = "AAECAwQFBgcICQoLDA0ODw"
LISTENER = b'{"name":"PLAINTEXT","host":"h","port":9092,"protocol":"PLAINTEXT"}'
IN_SYNC = ((1, BrokerEpoch(90)), (2, BrokerEpoch(91)))
EPOCHS = LeaderEpoch(4), PartitionEpoch(9)

# As version 0.1 wrote them, field by field: a store of any version must be read, and written so.
GOLDEN: list[tuple[Kind[Any, Any], Any, str, Any, bytes]] = [
    (CLUSTER_ID, None, "cluster/id", "abc", b"abc"),
    (FEATURES, None, "features", FeaturesValue(2, "0.2.0"), b'{"level":2,"by":"0.2.0"}'),
    (CONTROLLER, None, "ctl", ControllerValue(3, "i"), b'{"broker":3,"incarnation":"i"}'),
    (RECEIPT, (1, 7), "receipt/1/7", b"5/2", b"5/2"),
    (BROKER, 2, "broker/2", BrokerValue("i1", ()), b'{"incarnation":"i1","listeners":[]}'),
    (
        BROKER,
        1,
        "broker/1",
        BrokerValue(
            "i1",
            (Endpoint("PLAINTEXT", "h", 9092),),
            "a",
            ("d1",),
            {UUID: (0, 2)},
            True,
            True,
            5,
            2,
            BrokerEpoch(9),
        ),
        b'{"incarnation":"i1","listeners":[' + LISTENER + b'],"rack":"a","directories":["d1"],'
        b'"offline":{"AAECAwQFBgcICQoLDA0ODw":[0,2]},"unclean":true,"leaving":true,"since_ms":5,'
        b'"level":2,"previous_epoch":9}',
    ),
    (FENCE, 1, "fence/1", FenceValue(BrokerEpoch(9), "active"), b'{"be":9,"state":"active"}'),
    (SUSPECT, (1, 2), "suspect/1/2", SuspectValue(BrokerEpoch(9)), b'{"be":9}'),
    (DIRECTORIES, 1, "dirs/1", DirectoriesValue(("d1", "/d2")), b'{"ids":["d1","/d2"]}'),
    (
        TOPIC,
        "t.1",
        "topic/t.1",
        TopicValue(UUID, {"retention.ms": "5"}),
        b'{"id":"AAECAwQFBgcICQoLDA0ODw","configs":{"retention.ms":"5"}}',
    ),
    (TOPIC_ID, ID, f"tid/{UUID}", "t.1", b"t.1"),
    (
        PARTITION,
        (ID, 3),
        f"part/{UUID}/3",
        PartitionValue((1, 2, 3), IN_SYNC, 1, *EPOCHS, 2),
        b'{"replicas":[1,2,3],"isr":[[1,90],[2,91]],"leader":1,"le":4,"pe":9,"misr":2}',
    ),
    (
        PARTITION,
        (ID, 4),
        f"part/{UUID}/4",
        PartitionValue(
            (1, 2), IN_SYNC[:1], -1, *EPOCHS, 2, (3,), (2,), (2,), 1, "d1", True, True, True
        ),
        (
            b'{"replicas":[1,2],"isr":[[1,90]],"leader":-1,"le":4,"pe":9,"misr":2,"adding":[3],'
            b'"removing":[2],"elr":[2],"last":1,"dir":"d1","recovering":true,"given_up":true,'
            b'"restored":true}'
        ),
    ),
    (READY, ID, f"ready/{UUID}", ReadyValue(4), b'{"partitions":4}'),
    (DELETED, ID, f"deleted/{UUID}", DeletedValue("t", (1, 2)), b'{"name":"t","brokers":[1,2]}'),
    (BROKER_CONFIG, None, "config/broker/default", {"a": "b"}, b'{"a":"b"}'),
    (BROKER_CONFIG, 4, "config/broker/4", {"a": "b"}, b'{"a":"b"}'),
    (GROUP_CONFIG, "g/1", "config/group/g/1", {"a": "b"}, b'{"a":"b"}'),
    (
        QUOTA,
        (("client-id", None), ("user", "a/b é")),
        "quota/client-id/<default>/user/a%2Fb %C3%A9",
        {"producer_byte_rate": 1000.0},
        b'{"producer_byte_rate":1000.0}',
    ),
    (NEXT_PRODUCER_ID, None, "pid/next", 3000, b"3000"),
]
IDS_OF_ROWS = [row[2] for row in GOLDEN]


@pytest.mark.parametrize("kind, names, key, value, encoded", GOLDEN, ids=IDS_OF_ROWS)
def test_bytes_in_the_store_stay_as_they_are(kind, names, key, value, encoded):
    assert kind.put(names, value) == Put(key, encoded)
    assert (kind.parse(key), kind.decode(encoded)) == (names, value)
    assert kind.delete(names).key == key
    assert KINDS.of(key) is kind


@pytest.mark.parametrize("kind, names, key, value, encoded", GOLDEN, ids=IDS_OF_ROWS)
def test_fields_of_later_versions_are_ignored(kind, names, key, value, encoded):
    if isinstance(value, msgspec.Struct):
        assert kind.decode(encoded[:-1] + b',"later":[1]}') == value


def test_all_kinds_are_here():
    assert {kind.pattern for kind in KINDS} == {row[0].pattern for row in GOLDEN}


def test_what_was_put_and_deleted_leaves_the_image_of_an_empty_store():
    builder = ImageBuilder(ClusterImage())
    for _, _, key, _, encoded in GOLDEN:
        builder.add(KeyValue(key, encoded, 5, 5, 1))
    full, changes = builder.build(5)
    assert changes.topics == {ID}
    assert changes.parts == {kind.notifies for kind in KINDS} - {""}
    assert not any(getattr(full, name) == getattr(ClusterImage(), name) for name in FIELDS)
    builder = ImageBuilder(full)
    for key in IDS_OF_ROWS:
        builder.add(Deleted(key))
    empty, again = builder.build(6)
    assert again == changes
    for name in FIELDS - {"revision"}:
        left = getattr(empty, name)
        assert (
            len(left) == 0 if name in {"entries", "ids"} else left == getattr(ClusterImage(), name)
        ), name


def test_the_image_has_a_field_for_each_of_their_parts():
    parts = [kind.image.part for kind in KINDS if isinstance(kind.image, Rows | Single)]
    for part in (*parts, ENTRIES, IDS, UNFINISHED):
        assert part.name in FIELDS
        assert type(part.of(ClusterImage())) is type(part.empty)


@pytest.mark.parametrize("key", ["ctl/1", "features2", "broker", "config/other/1", "", "/"])
def test_keys_of_no_kind_are_ignored(key: str):
    assert KINDS.of(key) is None


def test_a_partition_stays_small_in_the_store():
    value = PartitionValue(
        (1, 2, 3),
        ((1, BrokerEpoch(90)), (2, BrokerEpoch(91))),
        1,
        LeaderEpoch(4),
        PartitionEpoch(9),
        2,
    )
    text = PARTITION.encode(value)
    assert text == (b'{"replicas":[1,2,3],"isr":[[1,90],[2,91]],"leader":1,"le":4,"pe":9,"misr":2}')
    assert PARTITION.decode(text) == value


def test_keys_lie_under_their_prefixes():
    assert PARTITION.key((ID, 3)).startswith(partitions_of(ID))
    assert BROKER_CONFIG.key(None) == "config/broker/default"
    assert BROKER_CONFIG.key(4) == "config/broker/4"


@pytest.mark.parametrize(
    "entity, key",
    [
        ((("client-id", "app"),), "quota/client-id/app"),
        ((("client-id", None), ("user", "u")), "quota/client-id/<default>/user/u"),
        ((("ip", "::1"),), "quota/ip/::1"),
        ((("user", "a/b <default> é"),), "quota/user/a%2Fb %3Cdefault%3E %C3%A9"),
    ],
)
def test_whom_a_quota_is_for_is_read_back_from_its_key(entity: QuotaEntity, key: str) -> None:
    assert QUOTA.key(entity) == key
    assert QUOTA.parse(key) == entity


def test_a_quota_needs_a_name_for_each_type() -> None:
    with pytest.raises(ValueError, match="pairs"):
        QUOTA.parse("quota/user/u/client-id")
