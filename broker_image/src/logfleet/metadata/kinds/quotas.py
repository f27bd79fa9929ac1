"""Quotas of clients (KIP-546)."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from logfleet.metadata.image_draft import Part
from logfleet.metadata.kind import KeyForm, Kind, Rows, json_of
from logfleet.metadata.store import KeyValue

DEFAULT_ENTITY: Final = "<default>"

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs, sorted by type.

Types `user`, `client-id`, `ip`; name None: the default of that type.
"""

QuotaValue = dict[str, float]
"""Limit by quota key, e.g. `producer_byte_rate`."""


class Quotas(msgspec.Struct, frozen=True):
    """Limits of an entity by quota key (KIP-546). revision: of the last write."""

    values: Mapping[str, float]
    revision: int = 0


def _text(entity: QuotaEntity) -> str:
    return "/".join(f"{kind}/{_name_text(name)}" for kind, name in entity)


def _name_text(name: str | None) -> str:
    return DEFAULT_ENTITY if name is None else quote(name, safe=":@ ")


def _entity(rest: str) -> QuotaEntity:
    parts = rest.split("/")
    if len(parts) % 2:
        raise ValueError("not pairs of a type and a name")
    names = (None if name == DEFAULT_ENTITY else unquote(name) for name in parts[1::2])
    return tuple(zip(parts[::2], names, strict=True))


def _quotas(_entity: QuotaEntity, value: QuotaValue, item: KeyValue) -> Quotas:
    return Quotas(value, item.mod_revision)


QUOTA: Final = Kind(
    "quota/ENTITY",
    KeyForm(_text, _entity),
    json_of(QuotaValue),
    image=Rows(Part[Mapping[QuotaEntity, Quotas]]("quotas", {}), _quotas),
    notifies="quotas",
)
"""As `quota/client-id/NAME`, `quota/client-id/NAME/user/NAME`. NAME is percent-encoded; `<default>`
is the quota of all others. Written by the controller.
"""
