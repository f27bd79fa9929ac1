"""Opens connections to a broker, asks one question over each and then only waits until the broker has closed them all.

python -m e2e.workloads.idle_connections PORT COUNT     prints `open COUNT`, later `closed COUNT`
"""

import resource
import selectors
import socket
import sys

from logfleet.wire.frame import encode_request
from logfleet.wire.messages import ApiVersionsRequest

CONNECT_S_MAX = 60.0
SPARE_DESCRIPTORS = 100


def main(port: int, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + SPARE_DESCRIPTORS), hard))
    question = b"".join(encode_request(ApiVersionsRequest(), 0, 1, "idle"))  # type: ignore[arg-type]
    peers = []
    for _ in range(count):
        peer = socket.create_connection(("127.0.0.1", port), CONNECT_S_MAX)
        peer.sendall(question)
        assert peer.recv(4096), "closed instead of answered"
        peers.append(peer)
    print(f"open {count}", flush=True)
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            selector.register(peer, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                peer = key.fileobj  # type: ignore[assignment]
                if not peer.recv(4096):
                    selector.unregister(peer)
                    peer.close()
    print(f"closed {count}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
