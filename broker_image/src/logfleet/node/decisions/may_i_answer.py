"""May these brokers go down now? The request comes over HTTP, the answer is JSON."""

from collections.abc import Sequence
from typing import Final

import msgspec

from logfleet.controller.brokers.stop_check import check_stop, objections
from logfleet.metadata.image import ClusterImage

NAMED_MAX: Final = 20
"""Partitions that an answer names; all are counted."""


class WrongMayIRequest(ValueError):
    """The request names brokers or a zone that do not exist. The text says which exist."""


class NamedPartition(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """A partition. rule: the objection; can_heal: whether waiting may help (see Objection)."""

    topic: str
    partition: int
    rule: str | None = None
    can_heal: bool | None = None


class MayIAnswer(msgspec.Struct, frozen=True):
    """Whether the brokers may go down now. may: the answer. brokers: the brokers in question.

    forbidden: the partitions that object, first those for which waiting may help (curable_count).
    under_replicated: the partitions that would lack replicas, whether or not they object.
    """

    may: bool
    brokers: list[int]
    forbidden: list[NamedPartition]
    forbidden_count: int
    curable_count: int
    under_replicated: list[NamedPartition]
    under_replicated_count: int


def answer(image: ClusterImage, stop: Sequence[str], zones: Sequence[str]) -> MayIAnswer:
    """Decide whether the brokers in `stop` and all brokers in `zones` may go down together.

    Takes milliseconds per thousand partitions. Raises WrongMayIRequest.
    """
    brokers = _brokers(image, stop, zones)
    forbidden = sorted(
        (
            NamedPartition(each.topic, each.index, each.rule, each.can_heal)
            for each in objections(image, brokers)
        ),
        key=lambda each: (not each.can_heal, each),
    )
    touched = sorted(check_stop(image, brokers).under_replicated)
    return MayIAnswer(
        may=not forbidden,
        brokers=sorted(brokers),
        forbidden=forbidden[:NAMED_MAX],
        forbidden_count=len(forbidden),
        curable_count=sum(each.can_heal is True for each in forbidden),
        under_replicated=[NamedPartition(*each) for each in touched[:NAMED_MAX]],
        under_replicated_count=len(touched),
    )


def _brokers(image: ClusterImage, stop: Sequence[str], zones: Sequence[str]) -> set[int]:
    found = set()
    for text in stop:
        if not text.isdecimal() or int(text) not in image.brokers:
            there = ", ".join(map(str, sorted(image.brokers)))
            raise WrongMayIRequest(f"no broker {text} is registered; there are {there}")
        found.add(int(text))
    for zone in zones:
        inside = {broker.id for broker in image.brokers.values() if broker.rack == zone}
        if not inside:
            there = ", ".join(sorted({each.rack for each in image.brokers.values() if each.rack}))
            raise WrongMayIRequest(f"no broker is in zone {zone}; there are {there or 'no zones'}")
        found |= inside
    if not found:
        raise WrongMayIRequest("name the brokers to go down: stop=ID or lose-zone=ZONE")
    return found
