import msgspec
import pytest
from logfleet.metadata import keys
from logfleet.metadata.kinds.quotas import QUOTA
from logfleet.types import BrokerEpoch, LeaderEpoch, PartitionEpoch


def test_a_partition_stays_small_in_the_store():
    value = keys.PartitionValue(
        (1, 2, 3),
        ((1, BrokerEpoch(90)), (2, BrokerEpoch(91))),
        1,
        LeaderEpoch(4),
        PartitionEpoch(9),
        2,
    )
    text = keys.encode(value)
    assert text == (b'{"replicas":[1,2,3],"isr":[[1,90],[2,91]],"leader":1,"le":4,"pe":9,"misr":2}')
    assert msgspec.json.decode(text, type=keys.PartitionValue) == value


def test_a_field_of_a_later_version_is_ignored():
    text = b'{"replicas":[1],"isr":[[1,9]],"leader":1,"le":0,"pe":0,"misr":1,"elr":[2]}'
    assert msgspec.json.decode(text, type=keys.PartitionValue).leader == 1


def test_keys_lie_under_their_prefixes():
    assert keys.partition("U", 3).startswith(keys.partitions("U"))
    assert keys.broker_config(None) == "config/broker/default"
    assert keys.broker_config(4) == "config/broker/4"
    assert (keys.broker(1), keys.fence(1)) == ("broker/1", "fence/1")
    assert (keys.topic("a"), keys.topic_id("U")) == ("topic/a", "tid/U")
    assert (keys.ready("U"), keys.deleted("U")) == ("ready/U", "deleted/U")


@pytest.mark.parametrize(
    "entity, key",
    [
        ((("client-id", "app"),), "quota/client-id/app"),
        ((("client-id", None), ("user", "u")), "quota/client-id/<default>/user/u"),
        ((("ip", "::1"),), "quota/ip/::1"),
        ((("user", "a/b <default> é"),), "quota/user/a%2Fb %3Cdefault%3E %C3%A9"),
    ],
)
def test_whom_a_quota_is_for_is_read_back_from_its_key(entity: keys.QuotaEntity, key: str) -> None:
    assert keys.quota(entity) == key
    assert QUOTA.parse(key) == entity


def test_a_quota_needs_a_name_for_each_type() -> None:
    with pytest.raises(ValueError, match="pairs"):
        QUOTA.parse("quota/user/u/client-id")
