"""The events and effects of `node.cluster.registration`.

A request is an effect with a number; its shell owes one reply with the same number, or a `Failed`.
A reply to a request that nothing waits for any more is ignored.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from logfleet.metadata.image import ClusterImage
from logfleet.metadata.store import KeyValue, StoreError, StoreRefused, Txn, TxnResult
from logfleet.types import BrokerEpoch

# --- requests to the store


class GrantLease(msgspec.Struct, frozen=True):
    """Grant a lease and keep it alive until `Revoke`, or until the store reports its end."""

    number: int = 0


class Read(msgspec.Struct, frozen=True):
    key: str
    number: int = 0


class Write(msgspec.Struct, frozen=True):
    """Send this transaction once."""

    txn: Txn
    number: int = 0


class Revoke(msgspec.Struct, frozen=True):
    """Stop keeping this lease alive, and end it."""

    lease: int
    number: int = 0


Request = GrantLease | Read | Write | Revoke


# --- other effects


class Registered(msgspec.Struct, frozen=True):
    """The broker is registered with this epoch, under this lease."""

    epoch: BrokerEpoch
    lease: int


class Lost(msgspec.Struct, frozen=True):
    """The registration has ended: the broker leads nothing from now on."""

    reason: str


class Active(msgspec.Struct, frozen=True):
    """The controller made the registration of this epoch active.

    No partition has the broker in its ISR, or as an eligible leader, for records that it may lack.
    """

    epoch: BrokerEpoch


class MayStop(msgspec.Struct, frozen=True):
    """The broker that announced its leave may stop. cause: why now; "" if it announced nothing."""

    cause: str


class Refused(msgspec.Struct, frozen=True):
    """The store refused an update of this key; it is repeated after a pause."""

    key: str
    error: StoreRefused


class Accepted(msgspec.Struct, frozen=True):
    """The store has taken an update of this key."""

    key: str


class Fail(msgspec.Struct, frozen=True):
    """The broker must not go on. Only `StopAsked` has an effect after this."""

    error: Exception


class Report(msgspec.Struct, frozen=True):
    """A line for the log. level: info, warning or error."""

    level: str
    event: str
    fields: Mapping[str, Any]


Effect = Request | Registered | Lost | Active | MayStop | Refused | Accepted | Fail | Report


# --- replies


class LeaseGranted(msgspec.Struct, frozen=True):
    number: int
    lease: int


class KeyRead(msgspec.Struct, frozen=True):
    """held: None if there is no such key."""

    number: int
    held: KeyValue | None


class Written(msgspec.Struct, frozen=True):
    """The definite reply to a transaction, whether its compares held or not."""

    number: int
    result: TxnResult


class Revoked(msgspec.Struct, frozen=True):
    number: int


class Failed(msgspec.Struct, frozen=True):
    """The request failed, or its outcome is unknown."""

    number: int
    error: StoreError


Reply = LeaseGranted | KeyRead | Written | Revoked | Failed


# --- other events


class Started(msgspec.Struct, frozen=True):
    """Register, and again whenever the registration is lost."""


class LeaseLost(msgspec.Struct, frozen=True):
    """The store reports that this lease has ended; also after `Registered`, if it ended before."""

    lease: int


class ImageSeen(msgspec.Struct, frozen=True):
    """A newer image of the cluster."""

    image: ClusterImage


class ValueChanged(msgspec.Struct, frozen=True):
    """These fields of the broker's value are others from now on."""

    changes: Mapping[str, Any]


class LeaveAsked(msgspec.Struct, frozen=True):
    """Announce that the broker leaves; `MayStop` follows after `ms_max` at the latest."""

    ms_max: int


class StopAsked(msgspec.Struct, frozen=True):
    """The broker has stopped: remove its registration, and do nothing more."""


class TimePassed(msgspec.Struct, frozen=True):
    """Nothing but the time has changed."""


Event = Reply | Started | LeaseLost | ImageSeen | ValueChanged | LeaveAsked | StopAsked | TimePassed
