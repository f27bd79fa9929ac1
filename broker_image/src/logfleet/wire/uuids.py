"""Kafka's text form of uuids.

It is base64url without padding, 22 characters (org.apache.kafka.common.Uuid).
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from logfleet.wire.schema import ZERO_UUID

UUID_BYTES = 16
TEXT_LENGTH = 22
ONE_UUID = bytes(15) + b"\x01"
# Kafka never uses these as topic ids: "unknown", and the metadata topic's id.
RESERVED = frozenset({ZERO_UUID, ONE_UUID})


def to_text(raw: bytes) -> str:
    """Kafka's text form of a uuid of 16 bytes."""
    assert len(raw) == UUID_BYTES
    return urlsafe_b64encode(raw)[:TEXT_LENGTH].decode()


def from_text(text: str) -> bytes:
    """The 16 bytes of a text; raises ValueError if it is not a uuid."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError as error:
        raise ValueError(f"{text!r} is not a uuid: {error}") from None
    if len(text) != TEXT_LENGTH or len(raw) != UUID_BYTES:
        raise ValueError(f"{text!r} is not a uuid: it must be 22 characters of base64url")
    return raw


def usable_as_id(raw: bytes) -> bool:
    """False for reserved ids and for those whose text starts with a dash.

    Kafka's tools take such a text for an option.
    """
    return raw not in RESERVED and not to_text(raw).startswith("-")


__all__ = ["ONE_UUID", "RESERVED", "ZERO_UUID", "from_text", "to_text", "usable_as_id"]
