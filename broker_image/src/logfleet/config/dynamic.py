"""Which parts of a running broker must be notified when its configuration changes."""

import enum
from collections.abc import Mapping
from typing import Final

from logfleet.config.broker_updates import base_key, problem_of
from logfleet.config.keys import TOPIC_KEYS, ConfigError
from logfleet.config.throttle_keys import Side
from logfleet.config.topic import BrokerLayers
from logfleet.metadata.image import ClusterImage


class BrokerPart(enum.Enum):
    """Parts of a broker that act on configuration which may change while it runs."""

    LOGS = "logs"
    CONNECTIONS = "connections"
    PRODUCERS = "producers"
    REPLICATION = "replication"


_PIECES: Final[Mapping[str, BrokerPart]] = {
    **{name: BrokerPart.LOGS for key in TOPIC_KEYS.values() for name, _ in key.sources},
    "max.connections": BrokerPart.CONNECTIONS,
    "max.connections.per.ip": BrokerPart.CONNECTIONS,
    "max.connections.per.ip.overrides": BrokerPart.CONNECTIONS,
    "max.connection.creation.rate": BrokerPart.CONNECTIONS,
    "producer.id.expiration.ms": BrokerPart.PRODUCERS,
    **{side.rate_key: BrokerPart.REPLICATION for side in Side},
}


def layers_of(static: Mapping[str, str], image: ClusterImage, node_id: int) -> BrokerLayers:
    """The layers of a broker's values in an image. static: its server.properties."""
    cluster, own = image.configs_of_broker(None), image.configs_of_broker(node_id)
    return BrokerLayers(static, cluster.values, own.values)


def in_force(layers: BrokerLayers) -> tuple[BrokerLayers, tuple[ConfigError, ...]]:
    """The layers without invalid dynamic values, and the errors of those.

    We refuse to set such a value, but one that Kafka stored can be adopted. It counts as not set,
    as in Kafka (DynamicBrokerConfig.removeInvalidConfigs).
    """
    problems: list[ConfigError] = []

    def usable(values: Mapping[str, str]) -> dict[str, str]:
        found = {name: problem_of(name, text) for name, text in values.items()}
        problems.extend(filter(None, found.values()))
        return {name: text for name, text in values.items() if found[name] is None}

    cleaned = BrokerLayers(layers.static, usable(layers.cluster), usable(layers.dynamic))
    return cleaned, tuple(problems)


def pieces_to_notify(old: BrokerLayers, new: BrokerLayers) -> frozenset[BrokerPart]:
    """The pieces for which `old` and `new` differ in a value in force."""
    names = {name for layers in (old, new) for name in (*layers.cluster, *layers.dynamic)}
    if old.static != new.static:
        names |= {*old.static, *new.static}
    pieces = set()
    for name in names:
        key = base_key(name)
        if key is not None and key.name in _PIECES and old.set_value(name) != new.set_value(name):
            pieces.add(_PIECES[key.name])
    return frozenset(pieces)
