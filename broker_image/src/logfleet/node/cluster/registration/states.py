"""The states of a registration, and what may follow what."""

from typing import Final

import msgspec

from logfleet.metadata.kinds.brokers import BrokerValue
from logfleet.metadata.store import KeyValue
from logfleet.types import BrokerEpoch

NO_LEASE: Final = 0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """lease: the lease that this state holds and has to give back, NO_LEASE for none."""

    lease: int = NO_LEASE


class New(State, frozen=True, kw_only=True):
    """Not started."""


class Granting(State, frozen=True, kw_only=True):
    """Waits for a lease."""


class CheckingLevel(State, frozen=True, kw_only=True):
    """Reads the cluster's feature level."""


class Claiming(State, frozen=True, kw_only=True):
    """Creates the registration with this value."""

    value: BrokerValue


class GivingBack(State, frozen=True, kw_only=True):
    """Revokes its lease, as another registration holds the id."""

    held: KeyValue


class EndingFormer(State, frozen=True, kw_only=True):
    """Revokes the lease of this process's last registration, which still stands.

    etcd renews all leases after a restart or an election of its own.
    """


class Taken(State, frozen=True, kw_only=True):
    """Waits until the registration of another process has ended."""

    held: KeyValue


class Standing(State, frozen=True, kw_only=True):
    """Registered. revision: of the key's last write that is known. written: the value by that."""

    epoch: BrokerEpoch
    revision: int
    written: BrokerValue


class Updating(Standing, frozen=True, kw_only=True):
    """Registered; writes `value` into the registration."""

    value: BrokerValue


class Ending(State, frozen=True, kw_only=True):
    """The registration has ended; revokes its lease before there is another."""


class HasFailed(State, frozen=True, kw_only=True):
    """The broker must not go on."""


class Stopping(State, frozen=True, kw_only=True):
    """Revokes its lease as its last act."""


class Stopped(State, frozen=True, kw_only=True):
    """Nothing happens any more."""


PREVIOUS_STATES: Final[dict[type[State], frozenset[type[State]]]] = {
    Granting: frozenset({New, Claiming, EndingFormer, Taken, Ending}),
    CheckingLevel: frozenset({Granting, Claiming}),
    Claiming: frozenset({CheckingLevel}),
    GivingBack: frozenset({Claiming}),
    EndingFormer: frozenset({GivingBack}),
    Taken: frozenset({GivingBack}),
    Standing: frozenset({Claiming, Updating}),
    Updating: frozenset({Standing}),
    Ending: frozenset({Standing, Updating}),
    HasFailed: frozenset(
        {
            *(Granting, CheckingLevel, Claiming, GivingBack, EndingFormer, Taken, Updating),
            *(Ending, Stopping),
        }
    ),
    Stopping: frozenset(
        {CheckingLevel, Claiming, GivingBack, Standing, Updating, Ending, HasFailed}
    ),
    Stopped: frozenset({New, Granting, EndingFormer, Taken, HasFailed, Stopping}),
}
"""What each state may follow."""
