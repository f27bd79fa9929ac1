"""Which of several operators works: the rules of a Lease. PURE.

As client-go's LeaderElector (k8s.io/client-go/tools/leaderelection), whose times these are. Nobody compares
clocks of two machines: a holder is given up once its record has not changed for LEASE_S by the onlooker's own
clock, and a holder works for RENEW_S after it sent what renewed it, so it has stopped before anybody else begins.

kopf's peering is no election: its peers pause by priority, all of them where priorities are equal, a peer that
dies counts for a minute, and one that is paused in the middle of its work writes on afterwards.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from logfleet_operator import names
from logfleet_operator.names import Manifest

LEASE_S: Final = 15.0
RENEW_S: Final = 10.0
RETRY_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """The Lease's spec, {} if there is none, and since when it has been like that: seconds of the onlooker's clock."""

    spec: Manifest
    since: float


def sight(before: Sighting | None, live: Manifest | None, now: float) -> Sighting:
    spec = (live or {}).get("spec") or {}
    if before is not None and before.spec == spec:
        return before
    return Sighting(spec, now)


def is_free(seen: Sighting, identity: str, now: float) -> bool:
    """Whether `identity` may take or keep it."""
    holder = seen.spec.get("holderIdentity", "")
    lasts = float(seen.spec.get("leaseDurationSeconds", LEASE_S))
    return holder in {"", identity} or now - seen.since >= lasts


def claimed(
    namespace: str, name: str, live: Manifest | None, identity: str, now: datetime
) -> Manifest:
    """The Lease as its holder writes it: over the very object that was read, or as a new one."""
    before: dict[str, Any] = (live or {}).get("spec") or {}
    mine = before.get("holderIdentity") == identity
    time = f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    transitions = int(before.get("leaseTransitions", 0))
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(LEASE_S),
        "acquireTime": before["acquireTime"] if mine else time,
        "renewTime": time,
        "leaseTransitions": transitions if mine or live is None else transitions + 1,
    }
    return _lease(namespace, name, live, spec)


def given_back(namespace: str, name: str, live: Manifest, now: datetime) -> Manifest:
    """The Lease without a holder, so that the next need not wait."""
    spec = {
        "leaseDurationSeconds": 1,
        "renewTime": f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "leaseTransitions": int(live["spec"].get("leaseTransitions", 0)),
    }
    return _lease(namespace, name, live, spec)


def _lease(namespace: str, name: str, live: Manifest | None, spec: Manifest) -> Manifest:
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": names.FIELD_MANAGER},
    }
    if live is not None:
        metadata["resourceVersion"] = live["metadata"]["resourceVersion"]
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }
