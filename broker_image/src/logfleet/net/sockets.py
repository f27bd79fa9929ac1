"""Listening sockets: bound first, listening later, with Kafka's socket options."""

import errno
import socket
from typing import Final

# The machine lacks this address family: the other one is enough.
_NO_SUCH_FAMILY: Final = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


def bind_tcp(host: str, port: int, receive_buffer_bytes: int | None = None) -> list[socket.socket]:
    """Bound, not yet listening, non-blocking sockets.

    For host "" one per address family, all on one port. port: 0 for a free one.
    receive_buffer_bytes: None for the system's default. Raises OSError; then nothing is left open.
    """
    infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    failure: OSError | None = None
    try:
        for family, kind, protocol, _, address in dict.fromkeys(infos):
            try:
                bound = socket.socket(family, kind, protocol)
            except OSError as error:
                failure = error
                continue
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if receive_buffer_bytes is not None:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            try:
                bound.bind((address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in _NO_SUCH_FAMILY or host:
                    raise
                failure = error
                sockets.pop().close()
                continue
            port = port or int(bound.getsockname()[1])
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    if not sockets:
        raise failure or OSError(errno.EADDRNOTAVAIL, "no address to listen on")
    return sockets


def prepare_accepted(accepted: socket.socket, send_buffer_bytes: int | None) -> None:
    """Set options: send small responses at once, notice dead peers.

    Source: Acceptor.configureAcceptedSocketChannel.
    """
    accepted.setblocking(False)
    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if send_buffer_bytes is not None:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
