"""When most brokers of several zones vanish at once, elections wait for them to register again.

That many deaths in one moment are less likely than a fault of the metadata store, or of the way to
it, that ended their leases. Elections while they come back one by one would move each partition
several times.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from logfleet.metadata.image import Broker
from logfleet.metadata.kinds.brokers import FENCED

Brokers = Mapping[int, Broker]
"""The registered brokers of an image, by id."""

HELD_MS_MAX: Final = 3_000
"""Milliseconds of one lease.

A broker that lost its registration registers again within that, if it can.
"""
WITHIN_MS: Final = 3_000
"""Brokers that vanish within this time vanish at once.

Their leases end within a second, because each was renewed at another moment.
"""
BROKERS_MIN: Final = 3
"""The rule needs three brokers: of two, "more than half" would mean both."""


class RecentBrokers:
    """The brokers of each image of the last WITHIN_MS."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, Brokers]] = deque()

    def record(self, brokers: Brokers, now_ms: int) -> None:
        """Call this whenever brokers have changed. now_ms: monotonic."""
        self._seen.append((now_ms, brokers))
        self._forget(now_ms)

    def within(self, now_ms: int) -> list[Brokers]:
        """The brokers at each moment of the last WITHIN_MS, the oldest first."""
        self._forget(now_ms)
        return [brokers for _, brokers in self._seen]

    def _forget(self, now_ms: int) -> None:
        while len(self._seen) > 1 and self._seen[1][0] <= now_ms - WITHIN_MS:
            self._seen.popleft()


class Hold(msgspec.Struct, frozen=True):
    """Elections wait.

    until_ms: at the latest until then, by the clock of `hold`. why: a sentence.
    """

    until_ms: int
    why: str


def hold(
    before: Hold | None, recent: Sequence[Brokers], brokers: Brokers, now_ms: int
) -> Hold | None:
    """Whether elections wait.

    An expired hold is returned while its reason lasts, so that no other one begins.

    before: the last result. recent: see RecentBrokers. brokers: of the newest image.
    """
    why = _why(recent, brokers)
    if why is None:
        return None
    return before or Hold(now_ms + HELD_MS_MAX, why)


def _why(recent: Sequence[Brokers], brokers: Brokers) -> str | None:
    """Why elections wait: most brokers, of two zones or more, lost their registrations.

    Some of them have no new one yet.
    """
    known = {each.id: each for seen in recent for each in seen.values()} | dict(brokers)
    gone = {each.id for each in _vanished(recent, brokers)}
    zones = {known[each].rack or each for each in gone}
    if len(known) < BROKERS_MIN or 2 * len(gone) <= len(known) or len(zones) < 2:
        return None
    missing = sorted(gone - brokers.keys())
    if not missing:
        return None
    return (
        f"{len(gone)} of {len(known)} brokers lost their registrations in {len(zones)} zones "
        f"within {WITHIN_MS // 1000} s; brokers {', '.join(map(str, missing))} may register again"
    )


def _vanished(recent: Sequence[Brokers], brokers: Brokers) -> list[Broker]:
    """Ended registrations, except of brokers that were leaving, and those already fenced.

    Other brokers have seen the latter refuse connections.
    """
    last = {(each.id, each.epoch): each for seen in recent for each in seen.values()}
    return [
        each
        for each in last.values()
        if not (each.id in brokers and brokers[each.id].epoch == each.epoch)
        and not each.value.leaving
        and not each.is_draining
        and each.state != FENCED
    ]
