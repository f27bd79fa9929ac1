import pytest
from logfleet.config.keys import TOPIC_KEYS
from logfleet.log.config import LogConfig

NUMBERS = [name for name in LogConfig.__struct_fields__ if type(getattr(LogConfig(), name)) is int]


@pytest.mark.parametrize("field", NUMBERS)
def test_a_default_is_that_of_the_topic_key(field):
    assert str(getattr(LogConfig(), field)) == TOPIC_KEYS[field.replace("_", ".")].default


def test_cleanup_policies_combine():
    assert LogConfig().deletes
    assert not LogConfig().compacts
    both = LogConfig(cleanup_policy=frozenset({"compact", "delete"}))
    assert both.deletes
    assert both.compacts
