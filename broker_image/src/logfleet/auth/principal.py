"""Principals, and their bytes in an Envelope (KIP-590).

Source: Kafka's KafkaPrincipal and DefaultKafkaPrincipalBuilder.
"""

from typing import Final

import msgspec

from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.errors import MalformedMessage
from logfleet.wire.messages import DefaultPrincipalData
from logfleet.wire.primitives import Buffer

_VERSION: Final = 0
_VERSION_BYTES: Final = 2


class Principal(msgspec.Struct, frozen=True, gc=False):
    """Who is at the other end of a connection.

    is_token_authenticated: it signed in with a delegation token.
    """

    type: str
    name: str
    is_token_authenticated: bool = False

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER: Final = "User"
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of connections without authentication."""


def encode_principal(principal: Principal) -> bytes:
    """The bytes in which a broker forwards a principal: int16 version, DefaultPrincipalData."""
    data = DefaultPrincipalData(
        type=principal.type,
        name=principal.name,
        token_authenticated=principal.is_token_authenticated,
    )
    return _VERSION.to_bytes(_VERSION_BYTES, "big") + encode_bytes(data, _VERSION)


def decode_principal(data: Buffer) -> Principal:
    """The principal that a broker forwarded; bytes behind it are ignored, as in Kafka.

    Raises MalformedMessage.
    """
    version = int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)
    if len(data) < _VERSION_BYTES or version != _VERSION:
        raise MalformedMessage("a principal of an unknown version")
    found = decode(DefaultPrincipalData, version, data, _VERSION_BYTES)[0]
    return Principal(found.type, found.name, found.token_authenticated)
