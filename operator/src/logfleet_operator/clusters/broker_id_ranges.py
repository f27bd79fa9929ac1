"""Broker ids: the range of each pool in each zone, and its number of brokers. PURE.

A broker's id is the base of its pool and zone plus its pod's ordinal. Its volume stores that id
(`meta.properties`), so an assigned base stays for as long as data may exist, and no other pool or
zone ever gets it. Assignments are read from three places, each of which can be lost alone: the
record ConfigMap, the labels of StatefulSets and the labels of volume claims. They must agree;
otherwise nothing is done, since a wrong id would show one broker's data under another broker's name
(the broker would refuse to start, too).

Only an ordinal whose pod ever had a node can have data and be registered with other brokers. Others
can be withdrawn: a number with a zero too many, a zone or a pool by mistake.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from logfleet.resources.cluster import ClusterSpec, zone_that_gives, zones_of
from logfleet.resources.plan import Reason, SpecRefusal

RANGE_SIZE: Final = 1000  # = BROKERS_PER_POOL_MAX: ordinals never leave their range


class BrokerIdRange(msgspec.Struct, frozen=True, order=True):
    """Broker ids base .. base + replicas - 1 of one pool in one zone ("" without zones).

    ran: pods may have run on the ordinals below it. In a single source it may exceed replicas,
    after `merge` and `allocate` it does not. leaving: how many of the last replicas are no longer
    wanted; they are removed once they are empty (`shrinking`).
    """

    pool: str
    zone: str
    base: int
    replicas: int
    ran: int = 0
    leaving: int = 0

    @property
    def staying(self) -> int:
        """The wanted number of brokers."""
        return self.replicas - self.leaving


class RangeClaim(msgspec.Struct, frozen=True):
    """The range that one object records; `source` names the object for a person."""

    source: str
    range: BrokerIdRange


def merge(claims: Iterable[RangeClaim]) -> list[BrokerIdRange] | SpecRefusal:
    """All assigned ranges, in order of base; counts are the largest ones claimed."""
    found: dict[tuple[str, str], RangeClaim] = {}
    for claim in claims:
        key = (claim.range.pool, claim.range.zone)
        known = found.setdefault(key, claim)
        if known.range.base != claim.range.base:
            return SpecRefusal(
                Reason.CONFLICT,
                f"broker ids of pool {key[0]} zone {key[1] or '-'}: {known.source} says base "
                f"{known.range.base}, {claim.source} says {claim.range.base}; correct one of them",
            )
        largest = msgspec.structs.replace(
            known.range,
            replicas=max(known.range.replicas, claim.range.replicas),
            ran=max(known.range.ran, claim.range.ran),
        )
        found[key] = RangeClaim(known.source, largest)
    ranges = sorted((claim.range for claim in found.values()), key=lambda given: given.base)
    for lower, upper in itertools.pairwise(ranges):
        if upper.base == lower.base:
            return SpecRefusal(
                Reason.CONFLICT,
                f"broker ids from {lower.base} are given to pool {lower.pool} zone "
                f"{lower.zone or '-'} and to pool {upper.pool} zone {upper.zone or '-'}; "
                "correct the labels of the volume claims",
            )
    return ranges


def spread(
    ran: Mapping[str, int], zones: Sequence[str], total: int, asked: Mapping[str, int]
) -> dict[str, int]:
    """Brokers per zone for `total`: those that ran stay, each further one goes where fewest are.

    asked: brokers per zone as planned before; these are filled first. Ties go to the first zone in
    `zones`. Reordering or adding zones moves no broker. If fewer are wanted than ran,
    `zone_that_gives` chooses which to remove; a zone that is not listed loses all.
    """
    counts = {zone: ran.get(zone, 0) for zone in zones}
    missing = total - sum(counts.values())

    def preference(zone: str) -> tuple[bool, int]:
        return counts[zone] >= asked.get(zone, 0), counts[zone]

    for _ in range(missing):
        counts[min(zones, key=preference)] += 1
    for _ in range(-missing):
        counts[zone_that_gives(counts)] -= 1
    return counts


def never_ran(spec: ClusterSpec, given: Sequence[BrokerIdRange]) -> list[BrokerIdRange]:
    """Ranges of pools and zones that `spec` does not name, if none of their brokers ever ran."""
    named = {(pool.name, zone) for pool in spec.pools for zone in zones_of(spec, pool)}
    return [known for known in given if not known.ran and (known.pool, known.zone) not in named]


def allocate(spec: ClusterSpec, given: Sequence[BrokerIdRange]) -> list[BrokerIdRange]:
    """The ranges that `spec` asks for, in order of base; ranges in `given` keep their base.

    Brokers that ran and are no longer wanted stay among `replicas`, counted as `leaving`.
    """
    bases = {(known.pool, known.zone): known for known in given}
    free = max((known.base + RANGE_SIZE for known in given), default=0)
    wanted: dict[tuple[str, str], int] = {}
    for pool in spec.pools:
        known_zones = {known.zone: known for known in given if known.pool == pool.name}
        ran = {zone: known.ran for zone, known in known_zones.items()}
        asked = {zone: known.replicas for zone, known in known_zones.items()}
        counts = spread(ran, zones_of(spec, pool), pool.replicas, asked)
        wanted |= {(pool.name, zone): count for zone, count in counts.items()}
    ranges = []
    for place, count in wanted.items():
        known = bases.get(place)
        if known is None:
            if count == 0:
                continue
            known, free = BrokerIdRange(*place, free, count), free + RANGE_SIZE
        ranges.append(_with(known, count))
    unnamed = [known for place, known in bases.items() if place not in wanted and known.ran]
    ranges += [_with(known, 0) for known in unnamed]
    return sorted(ranges, key=lambda known: known.base)


def _with(known: BrokerIdRange, wanted: int) -> BrokerIdRange:
    replicas = max(wanted, known.ran)
    return msgspec.structs.replace(known, replicas=replicas, leaving=replicas - wanted)
