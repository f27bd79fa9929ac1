"""What a kubelet writes into the status of a pod."""

from datetime import datetime

from logfleet_operator.names import Manifest


def ready_condition(live: Manifest, now: datetime, *, ready: bool) -> Manifest:
    """It keeps the time since when it is so."""
    before: Manifest = live.get("status", {}).get("conditions", [{}])[0]
    if before.get("status") == str(ready):
        return dict(before)
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
