"""Connects a runtime with what this broker leads and follows."""

from typing import Any

from logfleet.node.coordinators.runtime import CoordinatorRuntime
from logfleet.node.partitions.hosting import Hosting
from logfleet.node.replication.room import Replication


def subscribe(
    runtime: CoordinatorRuntime[Any, Any, Any], hosting: Hosting, replication: Replication
) -> None:
    """Coordinate what is led from now on; keep ready what is followed."""
    hosting.following.on_followed.append(runtime.standby.followed)
    replication.truncater.on_truncated.append(runtime.standby.truncated)
    hosting.leadership.on_led.append(runtime.led)
    hosting.leadership.on_lost.append(runtime.lost)
