"""Who connects and speaks another protocol, by the first bytes, which would be a frame's size."""

from typing import Final

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP: Final = frozenset(b"GET |HEAD|POST|PUT |DELE|OPTI|PATC|CONN|TRAC|PRI ".split(b"|"))


def refused_size(size: bytes) -> str:
    """Why a connection is closed whose next 4 bytes are no size of a frame that is served."""
    if size[:2] == _TLS_HANDSHAKE:
        return "the client speaks TLS, and this listener is PLAINTEXT: set security.protocol=PLAINTEXT there"
    if size in _HTTP:
        return "the client speaks HTTP, and this listener Kafka's protocol: HTTP is at logfleet.admin.listener"
    return f"frame of {int.from_bytes(size, 'big', signed=True)} bytes"
