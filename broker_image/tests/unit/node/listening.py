"""A listener in a test's hands."""

from logfleet.node.listener import Listener


def stop_ticking(listener: Listener) -> None:
    """From now on only the test moves its clock (`now`, seconds) and sweeps (`_close_idle`): a busy machine makes nobody idle."""
    assert listener._ticker is not None, "it serves"
    listener._ticker.cancel()
