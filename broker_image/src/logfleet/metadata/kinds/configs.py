"""Dynamic configuration of brokers and groups."""

from collections.abc import Mapping
from typing import Final

import msgspec

from logfleet.metadata.image_draft import Part
from logfleet.metadata.kind import TEXT, KeyForm, Kind, Rows, json_of
from logfleet.metadata.store import KeyValue

ConfigValue = dict[str, str]

CLUSTER_DEFAULT: Final = "default"
"""The ID in `config/broker/ID` for values of all brokers."""


class StoredConfigs(msgspec.Struct, frozen=True):
    """The stored configuration of a broker, of all brokers or of a group.

    revision: 0 if there is none.
    """

    values: Mapping[str, str] = {}
    revision: int = 0


def _configs(_key: object, value: ConfigValue, item: KeyValue) -> StoredConfigs:
    return StoredConfigs(value, item.mod_revision)


def _broker_text(broker_id: int | None) -> str:
    return CLUSTER_DEFAULT if broker_id is None else str(broker_id)


def _broker_id(rest: str) -> int | None:
    return None if rest == CLUSTER_DEFAULT else int(rest)


BROKER_CONFIG: Final = Kind(
    "config/broker/ID",
    KeyForm(_broker_text, _broker_id),
    json_of(ConfigValue),
    image=Rows(Part[Mapping[int | None, StoredConfigs]]("broker_configs", {}), _configs),
    notifies="broker_configs",
)
"""Of a broker, or of all brokers (key None). Written by the controller."""

GROUP_CONFIG: Final = Kind(
    "config/group/NAME",
    TEXT,
    json_of(ConfigValue),
    image=Rows(Part[Mapping[str, StoredConfigs]]("group_configs", {}), _configs),
)
"""Written by the controller."""
