"""Recognises clients of other protocols by their first bytes, which would be a frame's size."""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP: Final = frozenset(b"GET |HEAD|POST|PUT |DELE|OPTI|PATC|CONN|TRAC|PRI ".split(b"|"))


def refused_size(size: bytes) -> str:
    """Why a connection is closed whose next 4 bytes are not an acceptable frame size."""
    if size[:2] == _TLS_HANDSHAKE:
        return (
            "the client speaks TLS, but this listener is PLAINTEXT: "
            "set security.protocol=PLAINTEXT there"
        )
    if size in _HTTP:
        return (
            "the client speaks HTTP, but this listener speaks Kafka's protocol: "
            "HTTP is at logfleet.admin.listener"
        )
    return f"frame of {int.from_bytes(size, 'big', signed=True)} bytes"
