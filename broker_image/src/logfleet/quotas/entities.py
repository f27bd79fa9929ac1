"""Quotas of clients: valid entities and limits, AlterClientQuotas, DescribeClientQuotas.

Checks, messages and the meaning of a filter are Kafka's (KIP-546; ClientQuotaControlManager,
ClientQuotasImage), except that an ip must be an address here: host names are not resolved.
"""

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from logfleet.metadata.image import Quotas
from logfleet.metadata.kinds.quotas import QUOTA, QuotaEntity
from logfleet.metadata.packing import Step
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# Kafka's type and its largest value for whole numbers; None for any positive number.
_CLIENT_KEYS: Final[Mapping[str, tuple[str, float] | None]] = {
    PRODUCER_BYTE_RATE: ("a LONG", 2.0**63),
    CONSUMER_BYTE_RATE: ("a LONG", 2.0**63),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Final = {CONNECTION_CREATION_RATE: ("an INT", 2.0**31 - 1)}
_FRACTION_MAX: Final = 1e-6

EXACT, DEFAULT, ANY = 0, 1, 2
"""Ways in which a component of a filter matches.

Kafka: DescribeClientQuotasRequest.MATCH_TYPE_*; ANY is "specified".
"""


class QuotaAlteration(msgspec.Struct, frozen=True):
    """The changes to an entity's quotas. operations: quota key and limit, None to remove it."""

    entity: QuotaEntity
    operations: tuple[tuple[str, float | None], ...]


class FilterComponent(msgspec.Struct, frozen=True):
    """One condition on a type of entity.

    `match_type` is EXACT (with the name `match`), DEFAULT or ANY.
    """

    entity_type: str
    match_type: int
    match: str | None = None


def entity_of(names: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of names in any order.

    If a type occurs twice, the last one counts, as in Kafka.
    """
    return tuple(sorted(dict(names).items()))


def alter_quotas(
    quotas: Mapping[QuotaEntity, Quotas], alterations: Sequence[QuotaAlteration]
) -> tuple[list[Step], dict[QuotaEntity, Refusal | None]]:
    """The writes of all entities that are not refused, and by entity its refusal or None.

    The second alteration of an entity is refused.
    """
    steps: list[Step] = []
    refusals: dict[QuotaEntity, Refusal | None] = {}
    for alteration in alterations:
        entity = alteration.entity
        given = [key for key, _ in alteration.operations]
        if entity in refusals or len(set(given)) < len(given):
            refusals[entity] = _refusal(f"Ignoring duplicate entity {entity_text(entity)}")
            continue
        refusals[entity] = _refuse(alteration)
        if refusals[entity] is None:
            steps += _steps(entity, quotas.get(entity, Quotas({})), alteration.operations)
    return steps, refusals


def _steps(
    entity: QuotaEntity, present: Quotas, operations: Iterable[tuple[str, float | None]]
) -> list[Step]:
    values = dict(present.values)
    for key, limit in operations:
        if limit is None:
            values.pop(key, None)
        else:
            values[key] = limit
    if values == present.values:
        return []
    return [QUOTA.change(entity, values or None, present.revision)]


def _refuse(alteration: QuotaAlteration) -> Refusal | None:
    problem = entity_problem(alteration.entity)
    if problem is None:
        is_ip = alteration.entity[0][0] == IP
        for key, limit in alteration.operations:
            if limit is not None:
                problem = _limit_problem(key, limit, is_ip=is_ip)
            if problem is not None:
                break
    return _refusal(problem) if problem else None


def _refusal(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def entity_problem(entity: QuotaEntity) -> str | None:
    """Why this is not a valid entity; None if it is."""
    if not entity:
        return "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in {USER, CLIENT_ID, IP}:
            return f"Unhandled client quota entity type: {kind}"
        if name == "":
            return f"Empty {kind} not supported"
    names = dict(entity)
    if IP not in names:
        return None
    if len(names) > 1:
        return (
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId"
        )
    if names[IP] is not None and address_of(names[IP]) is None:
        return f"{names[IP]} is not an IP address; names of hosts are not looked up."
    return None


def address_of(ip: str) -> str | None:
    """One text for all spellings of an address, also of IPv4 within IPv6.

    None if it is not an address.
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def _limit_problem(key: str, limit: float, *, is_ip: bool) -> str | None:
    allowed = _IP_KEYS if is_ip else _CLIENT_KEYS
    if key not in allowed:
        return f"Invalid configuration key {key}"
    if not math.isfinite(limit):
        return f"Quota {key} must be a finite number"
    if limit <= 0:
        return f"Quota {key} must be greater than 0"
    whole = allowed[key]
    if whole is None:
        return None
    name, largest = whole
    if limit > largest:
        return f"Proposed value for {key} is too large for {name}."
    if math.fmod(limit, 1.0) > _FRACTION_MAX:
        return f"{key} cannot be a fractional value."
    return None


def entity_text(entity: QuotaEntity) -> str:
    """The text of Kafka's ClientQuotaEntity."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{names}}})"


def describe_quotas(
    quotas: Mapping[QuotaEntity, Quotas], components: Sequence[FilterComponent], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]] | Refusal:
    """The entities that match all components, with their limits.

    If `strict`, without other types.
    """
    refusal = _refuse_filter(components)
    if refusal is not None:
        return refusal
    if strict and not components:
        return []
    return [
        (entity, described.values)
        for entity, described in quotas.items()
        if _matches(dict(entity), components, strict=strict)
    ]


def _matches(
    names: Mapping[str, str | None], components: Sequence[FilterComponent], *, strict: bool
) -> bool:
    if strict and len(names) != len(components):
        return False
    return all(
        each.entity_type in names
        and (each.match_type == ANY or names[each.entity_type] == each.match)
        for each in components
    )


def _refuse_filter(components: Sequence[FilterComponent]) -> Refusal | None:
    seen: set[str] = set()
    for each in components:
        kind = each.entity_type
        if not kind:
            return _refusal("Invalid empty entity type.")
        if kind in seen:
            return _refusal(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in {USER, CLIENT_ID, IP}:
            message = f"Unsupported entity type {kind}"
            return Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
        problem = _match_problem(each)
        if problem is not None:
            return _refusal(problem)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        return _refusal(
            "Invalid entity filter component combination. IP filter component should not be "
            "used with "
            "user or clientId filter component."
        )
    return None


def _match_problem(component: FilterComponent) -> str | None:
    match component.match_type:
        case 0:  # EXACT
            if component.match is None:
                return "Request specified MATCH_TYPE_EXACT, but set match string to null."
        case 1 | 2 as kind:
            if component.match is not None:
                name = "DEFAULT" if kind == DEFAULT else "SPECIFIED"
                return f"Request specified MATCH_TYPE_{name}, but also specified a match string."
        case kind:
            return f"Unknown match type {kind}"
    return None


# --- which quota a client has


class ClientLimit(msgspec.Struct, frozen=True):
    """A limit and who shares it: all clients of `user`, of `client_id`, or of both.

    None for any.
    """

    limit: float
    user: str | None
    client_id: str | None


def limits_of(quotas: Mapping[QuotaEntity, Quotas], key: str) -> dict[QuotaEntity, float]:
    """The entities that have a limit for that quota key."""
    return {entity: each.values[key] for entity, each in quotas.items() if key in each.values}


def limit_of_client(
    limits: Mapping[QuotaEntity, float], user: str, client_id: str
) -> ClientLimit | None:
    """The most specific limit of a client (KIP-13, KIP-55; Kafka's DefaultQuotaCallback).

    A user's own limits come before the default for users, that before limits of client ids without
    a user. A client without an id has only its user's.
    """
    for user_name in (user, None):
        if client_id:
            for id_name in (client_id, None):
                limit = limits.get(((CLIENT_ID, id_name), (USER, user_name)))
                if limit is not None:
                    return ClientLimit(limit, user, client_id)
        limit = limits.get(((USER, user_name),))
        if limit is not None:
            return ClientLimit(limit, user, None)
    if client_id:
        for id_name in (client_id, None):
            limit = limits.get(((CLIENT_ID, id_name),))
            if limit is not None:
                return ClientLimit(limit, None, client_id)
    return None


def limits_of_addresses(quotas: Mapping[QuotaEntity, Quotas]) -> dict[str | None, float]:
    """New connections per second by address (see `address_of`); None for all other addresses.

    A stored name that is not an address has no effect.
    """
    limits = limits_of(quotas, CONNECTION_CREATION_RATE)
    return {
        name if name is None else address_of(name): limit
        for ((_, name),), limit in limits.items()
        if name is None or address_of(name) is not None
    }
