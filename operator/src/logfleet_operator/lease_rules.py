"""Which of several operators works: the rules of a Lease. PURE.

As client-go's LeaderElector (k8s.io/client-go/tools/leaderelection), with its times. Clocks of two
machines are never compared. An observer takes the Lease once its record has not changed for LEASE_S
by the observer's own clock. A holder works for RENEW_S after it sent its last renewal, so it stops
before another one starts.

kopf's peering is no election: peers pause by priority, all of them if priorities are equal; a dead
peer counts for a minute; and a peer that is paused in the middle of its work goes on writing.
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
class SeenLease:
    """The Lease's spec as last read ({} if there is no Lease), and since when it is unchanged.

    since: seconds of the observer's clock.
    """

    spec: Manifest
    since: float


def observed_lease(before: SeenLease | None, live: Manifest | None, now: float) -> SeenLease:
    spec = (live or {}).get("spec") or {}
    if before is not None and before.spec == spec:
        return before
    return SeenLease(spec, now)


def is_free(seen: SeenLease, identity: str, now: float) -> bool:
    """Whether `identity` may take or keep the Lease."""
    holder = seen.spec.get("holderIdentity", "")
    lasts = float(seen.spec.get("leaseDurationSeconds", LEASE_S))
    return holder in {"", identity} or now - seen.since >= lasts


def claimed(
    namespace: str, name: str, live: Manifest | None, identity: str, now: datetime
) -> Manifest:
    """The Lease as its holder writes it: over the object that was read, or as a new one."""
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
    """The Lease without a holder, so that the next operator need not wait."""
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
