"""A broker that serves in a child of the prepared process, with what orders may change of it."""

from dataclasses import dataclass, field

from logfleet.node.broker import Broker
from logfleet.testing.faults.disk import FaultyFiles
from logfleet.testing.faults.rules import FaultBook


@dataclass(frozen=True, slots=True)
class Running:
    """files: those that it uses. faults: those that its handlers ask."""

    broker: Broker
    files: FaultyFiles
    faults: FaultBook = field(default_factory=FaultBook)
