from logfleet.config.docs import config_docs
from logfleet.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS


def test_every_key_stands_where_it_belongs():
    page = config_docs()
    assert page.count("\n| `") == len(TOPIC_KEYS) + len(BROKER_KEYS) + len(GROUP_KEYS)
    effective, without = page.split("\n## Brokers")[1].split("\n### Brokers: without effect")
    for key in BROKER_KEYS.values():
        assert f"| `{key.name}` |" in (effective if key.has_effect else without), key.name
