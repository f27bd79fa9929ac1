"""The stage before the service: decides who is at the other end of a connection."""

from typing import Protocol

from logfleet.auth.principal import ANONYMOUS
from logfleet.net.connection import Service
from logfleet.net.peer import Peer


class SignIn(Protocol):
    def __call__(self, peer: Peer, certificate: bytes | None, service: Service, /) -> Service:
        """Called with a connection's first frame; returns what handles this frame and all others.

        That is `service`, once `peer.principal` is set; or a service that first asks the client,
        and then calls `service`. certificate: of the peer, see `net.transport.Transport`.
        """
        ...


def anonymous(peer: Peer, _certificate: bytes | None, service: Service) -> Service:
    """Serve everybody, as ANONYMOUS."""
    peer.principal = ANONYMOUS
    return service
