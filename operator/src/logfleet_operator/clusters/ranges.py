"""Broker ids: which range each pool has in each zone, and how many brokers. PURE.

A broker's id is the base of its pool and zone plus its pod's ordinal. Its volume holds that id
(`meta.properties`), so a base, once given, stays for as long as data may exist, and no other
pool or zone ever gets it. What was given is read from three places that can each be lost alone:
the record ConfigMap, the labels of StatefulSets and the labels of volume claims. They must agree;
where they do not, nothing is done, since a wrong id would show one broker's data under another
broker's name (the broker refuses to start then, too).
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from logfleet.resources.cluster import ClusterSpec, zones_of
from logfleet.resources.plan import Reason, Refusal

RANGE_SIZE: Final = 1000  # = BROKERS_PER_POOL_MAX: ordinals never leave their range


class Range(msgspec.Struct, frozen=True, order=True):
    """Broker ids base .. base + replicas - 1 of one pool in one zone ("" without zones)."""

    pool: str
    zone: str
    base: int
    replicas: int


class Claim(msgspec.Struct, frozen=True):
    """What one object says about a range; `source` names the object for a person."""

    source: str
    range: Range


def merge(claims: Iterable[Claim]) -> list[Range] | Refusal:
    """The ranges that were ever given, in order of base; the largest count claimed wins."""
    found: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        key = (claim.range.pool, claim.range.zone)
        known = found.setdefault(key, claim)
        if known.range.base != claim.range.base:
            return Refusal(
                Reason.CONFLICT,
                f"broker ids of pool {key[0]} zone {key[1] or '-'}: {known.source} says base "
                f"{known.range.base}, {claim.source} says {claim.range.base}; correct one of them",
            )
        if claim.range.replicas > known.range.replicas:
            found[key] = claim
    ranges = sorted((claim.range for claim in found.values()), key=lambda given: given.base)
    for lower, upper in itertools.pairwise(ranges):
        if upper.base == lower.base:
            return Refusal(
                Reason.CONFLICT,
                f"broker ids from {lower.base} are given to pool {lower.pool} zone "
                f"{lower.zone or '-'} and to pool {upper.pool} zone {upper.zone or '-'}; "
                "correct the labels of the volume claims",
            )
    return ranges


def spread(present: Mapping[str, int], zones: Sequence[str], total: int) -> dict[str, int] | None:
    """Brokers per zone for `total`: those present stay, each further one goes where fewest are.

    Ties go to the first zone in `zones`. Sticky: reordering or adding zones moves nothing.
    Returns None if brokers would have to go: more present than wanted, or in a zone not listed.
    """
    if any(count and zone not in zones for zone, count in present.items()):
        return None
    counts = {zone: present.get(zone, 0) for zone in zones}
    missing = total - sum(counts.values())
    if missing < 0:
        return None
    for _ in range(missing):
        emptiest = min(zones, key=counts.__getitem__)
        counts[emptiest] += 1
    return counts


def allocate(spec: ClusterSpec, given: Sequence[Range]) -> list[Range] | Refusal:
    """The ranges that `spec` asks for, in order of base, keeping what was `given`."""
    gone = {known.pool for known in given if known.replicas} - {pool.name for pool in spec.pools}
    if gone:
        return _fewer(f"pool {', '.join(sorted(gone))} has brokers or their volumes")
    bases = {(known.pool, known.zone): known.base for known in given}
    free = max((base + RANGE_SIZE for base in bases.values()), default=0)
    ranges = []
    for pool in spec.pools:
        present = {known.zone: known.replicas for known in given if known.pool == pool.name}
        counts = spread(present, zones_of(spec, pool), pool.replicas)
        if counts is None:
            where = ", ".join(f"{count} in zone {zone or '-'}" for zone, count in present.items())
            return _fewer(f"pool {pool.name} has brokers or their volumes: {where}")
        for zone, count in counts.items():
            base = bases.get((pool.name, zone))
            if base is None:
                if count == 0:
                    continue
                base, free = free, free + RANGE_SIZE
            ranges.append(Range(pool.name, zone, base, count))
    return sorted(ranges, key=lambda known: known.base)


def _fewer(found: str) -> Refusal:
    return Refusal(
        Reason.NOT_SUPPORTED,
        f"spec.pools: {found}, and this version does not remove brokers; write them back",
    )
