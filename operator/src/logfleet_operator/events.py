"""Events: what the operator did and what it refuses, each once, as `kubectl describe` shows them.

Events are best effort: an Event that cannot be written holds up nothing. Its name is a hash of its
text, so an Event that is written again (after a crash or a lost response) is the same object.
SHELL.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from logfleet.resources.document import GROUP
from logfleet.resources.plan import Reason

from logfleet_operator.conditions import DEGRADED, DELETION_BLOCKED, READY
from logfleet_operator.event_text import EventText
from logfleet_operator.kube import Kube, KubeConflict, KubeError, KubeUnavailable
from logfleet_operator.names import FIELD_MANAGER, Manifest

# Kubernetes, pkg/apis/core/validation: ValidateEventCreate.
NOTE_LENGTH_MAX: Final = 1024
NAME_LENGTH_MAX: Final = 253
REFUSALS: Final = frozenset(
    {Reason.INVALID, Reason.NOT_SUPPORTED, Reason.CONFLICT, Reason.CLUSTER_NOT_FOUND}
)

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def status_events(before: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[EventText]:
    """The Events for what is new in a status: refusals, warnings, degradation and their end."""
    for warning in status.get("warnings", ()):
        if warning not in before.get("warnings", ()):
            reason = "ConfigWarning" if warning.startswith("spec.") else "ClusterWarning"
            yield EventText("Warning", reason, warning, str(status["observedGeneration"]))
    level = status.get("featureLevel", 0)
    if 0 < before.get("featureLevel", 0) < level:
        yield EventText("Normal", "FeatureLevelRaised", f"to {level}", str(level))
    old = {each["type"]: each for each in before.get("conditions", ())}
    for new in status["conditions"]:
        was = old.get(new["type"], {})
        same = (was.get("status"), was.get("reason")) == (new["status"], new["reason"])
        word: str = new["reason"]
        event = EventText("Warning", word, new["message"] or word, new["lastTransitionTime"])
        kind, true = new["type"], new["status"] == "True"
        if kind == READY and not true and word in REFUSALS:
            if not (same and was["message"] == new["message"]):
                yield event
        elif kind == READY and true and not same:
            yield EventText("Normal", word, new["message"], new["lastTransitionTime"])
        elif kind in {DEGRADED, DELETION_BLOCKED} and true and not same:
            yield event


class Events:
    """now: the time of day. instance: which operator reports."""

    def __init__(
        self, kube: Kube, instance: str, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._kube = kube
        self._instance = instance
        self._now = now or (lambda: datetime.now(UTC))

    async def write(self, regarding: Manifest, event: EventText) -> None:
        """Write an Event about a live resource, unless it was written before."""
        manifest = self._manifest(regarding, event)
        try:
            await self._kube.create(manifest)
        except KubeConflict:
            return  # written already, or its namespace is being deleted
        except (KubeError, KubeUnavailable) as error:
            name = regarding["metadata"]["name"]
            log.warning("event_lost", about=name, reason=event.reason, error=str(error))

    def _manifest(self, regarding: Manifest, event: EventText) -> Manifest:
        metadata = regarding["metadata"]
        words = (metadata["uid"], event.type, event.reason, event.note, event.about)
        digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name'][: NAME_LENGTH_MAX - 17]}.{digest}",
                "namespace": metadata["namespace"],
            },
            "eventTime": self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": f"{GROUP}/{FIELD_MANAGER}",
            "reportingInstance": self._instance[:128] or FIELD_MANAGER,
            "action": event.reason,
            "reason": event.reason,
            "regarding": {
                "apiVersion": regarding["apiVersion"],
                "kind": regarding["kind"],
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "note": event.note[:NOTE_LENGTH_MAX],
            "type": event.type,
        }


def stateful_set_event(stored: Manifest, *, new: bool) -> EventText | None:
    """The Event for an applied StatefulSet; None for other kinds, which do not concern pods."""
    if stored["kind"] != "StatefulSet":
        return None
    metadata = stored["metadata"]
    reason, verb = ("SetMade", "made") if new else ("SetChanged", "changed")
    note = f"StatefulSet {metadata['name']} {verb}, {stored['spec']['replicas']} pods"
    return EventText("Normal", reason, note, f"{metadata['uid']}/{metadata['generation']}")
