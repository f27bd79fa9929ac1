"""Which requests a fault hits. PURE.

A fault names an API, one action, and what a request must name to be hit. Faults of one API are
tried in the order in which they were armed; the first that is due acts. One that only observes
counts and lets the next ones act.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from logfleet.testing.faults.layouts import GROUPS, naming_of, takes_error
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode

FAULTS_MAX: Final = 1_000
"""Faults that are armed at once."""

ACTIONS: Final = ("error", "delay_s", "lose_answer", "drop", "tear", "observe")


class BadFault(ValueError):
    """No request can be hit by such a fault. The text is one line for a person."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to some requests of one API. Exactly one action is given.

    error: Kafka's name of the error that the client gets; the request, or the partitions and topics
    that are hit, is not carried out. delay_s: the answer is sent so much later. lose_answer: the
    request is carried out, and the connection ends without the answer. drop: the connection ends,
    and the request is not carried out. tear: a fetch gets only so many bytes of a partition's
    records. observe: only counts.

    topic, partition, group, client_id: a request must name each of these that is given. every: of
    the requests that do, each `every`th is hit; times: so many of them, None for all. A fault that
    observes counts all.
    """

    api: str
    error: str | None = None
    delay_s: float | None = None
    lose_answer: bool = False
    drop: bool = False
    tear: int | None = None
    observe: bool = False
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    client_id: str | None = None
    every: int = 1
    times: int | None = 1

    def __post_init__(self) -> None:
        """Raises BadFault."""
        _known("API", self.api, API_BY_NAME)
        values = {name: getattr(self, name) for name in ACTIONS}
        given = [n for n, value in values.items() if value is not None and value is not False]
        if len(given) != 1:
            listed = ", ".join(ACTIONS)
            raise BadFault(
                f"a fault has exactly one of {listed}, not {' and '.join(given) or 'none'}"
            )
        if self.error is not None:
            _known("error", self.error, [each.name for each in ErrorCode if each])
            if not takes_error(self.api):
                raise BadFault(
                    f"{self.api} answers each of its rows in its own way: drop it, lose or delay"
                    " its answer instead"
                )
        self._check_filters()
        self._check_numbers()

    def _check_filters(self) -> None:
        if self.tear is not None and self.api != "Fetch":
            raise BadFault(f"only the records of Fetch can be torn, not {self.api}")
        layout = naming_of(self.api)
        if self.topic is not None and layout is None:
            raise BadFault(f"{self.api} names no topic")
        if self.partition is not None and (layout is None or layout.partitions is None):
            raise BadFault(f"{self.api} names no partition")
        if self.group is not None and self.api not in GROUPS:
            raise BadFault(f"{self.api} names no group")

    def _check_numbers(self) -> None:
        if self.every < 1 or (self.times is not None and self.times < 1):
            raise BadFault("every and times are at least 1")
        if self.delay_s is not None and not 0 < self.delay_s < 86_400:
            raise BadFault("delay_s is more than 0 and less than a day, in seconds")
        if self.tear is not None and self.tear < 0:
            raise BadFault("tear is a number of bytes, at least 0")

    @property
    def code(self) -> ErrorCode:
        """The error that clients get; NONE for other actions."""
        return ErrorCode.NONE if self.error is None else ErrorCode[self.error]

    def names_row(self, topic: str | None, partition: int | None) -> bool:
        """Whether this topic, or this partition of it, is one that the fault is for."""
        return (self.topic is None or self.topic == topic) and (
            self.partition is None or self.partition == partition
        )


def _known(what: str, name: str, names: Iterable[str]) -> None:
    """Raises BadFault with the nearest names if `name` is none of `names`."""
    by_folded = {each.casefold(): each for each in names}
    if by_folded.get(name.casefold()) == name:
        return
    near = difflib.get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.6)
    ending = f": did you mean {' or '.join(by_folded[each] for each in near)}?" if near else ""
    raise BadFault(f"{name!r} is no {what}{ending}")


def fault_of(document: Mapping[str, Any]) -> Fault:
    """The fault that a document describes, a key for each argument. Raises BadFault."""
    for name in document:
        _known("argument of a fault", name, Fault.__struct_fields__)
    try:
        return msgspec.convert(document, Fault)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, BadFault):
            raise error.__cause__ from None
        raise BadFault(str(error)) from None


class Named(msgspec.Struct, frozen=True):
    """What one request names. rows: topics with partitions, None for a topic as a whole.

    topics_are_all: it is about all topics, without their names.
    """

    client_id: str | None = None
    rows: tuple[tuple[str | None, int | None], ...] = ()
    groups: tuple[str, ...] = ()
    topics_are_all: bool = False

    def is_hit_by(self, fault: Fault) -> bool:
        """Whether the request names all that the fault asks for."""
        if fault.client_id is not None and fault.client_id != self.client_id:
            return False
        if fault.group is not None and fault.group not in self.groups:
            return False
        if fault.topic is None and fault.partition is None:
            return True
        return self.topics_are_all or any(fault.names_row(*row) for row in self.rows)


class ArmedFault:
    """A fault that waits for requests. seen: those that it is for. hits: those that it hit."""

    def __init__(self, number: int, fault: Fault) -> None:
        self.number = number
        self.fault = fault
        self.seen = 0
        self.hits = 0

    @property
    def is_spent(self) -> bool:
        """Whether it has hit as often as it may."""
        fault = self.fault
        return not fault.observe and fault.times is not None and self.hits >= fault.times

    def is_due(self) -> bool:
        """Count a request that the fault is for; whether it is hit."""
        self.seen += 1
        if self.is_spent or (not self.fault.observe and self.seen % self.fault.every):
            return False
        self.hits += 1
        return True


class FaultBook:
    """The faults that are armed at one broker."""

    def __init__(self) -> None:
        self._armed: dict[int, ArmedFault] = {}
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[ArmedFault]:
        """All that are armed, in the order in which they were."""
        return iter(self._armed.values())

    def arm(self, fault: Fault) -> ArmedFault:
        """Hit requests from now on. Raises BadFault if too many faults are armed."""
        if len(self._armed) >= FAULTS_MAX:
            raise BadFault(f"{FAULTS_MAX} faults are armed; remove some")
        armed = ArmedFault(next(self._numbers), fault)
        self._armed[armed.number] = armed
        return armed

    def find(self, number: int) -> ArmedFault:
        """The armed fault of that number. Raises BadFault."""
        try:
            return self._armed[number]
        except KeyError:
            raise BadFault(f"there is no fault {number}") from None

    def remove(self, number: int) -> ArmedFault:
        """Hit no more requests; what the fault has hit. Raises BadFault."""
        armed = self.find(number)
        del self._armed[number]
        return armed

    def concerns(self, api: str) -> bool:
        """Whether a request of the API may be hit or counted."""
        return any(each.fault.api == api and not each.is_spent for each in self)

    def choose(self, api: str, named: Named) -> ArmedFault | None:
        """The fault that acts on a request, which counts; None if none does.

        One that tears does not count yet: it hits only a fetch that has records.
        """
        for armed in self:
            fault = armed.fault
            if fault.api != api or not named.is_hit_by(fault):
                continue
            if fault.tear is not None:
                if not armed.is_spent:
                    return armed
            elif armed.is_due() and not fault.observe:
                return armed
        return None
