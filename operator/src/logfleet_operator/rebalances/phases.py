"""In which phase a Rebalance is, and what to do for it next. PURE.

Pending -> Proposed -> Running -> Done, and from each of the first three to Stopped. The phase is a
field of the status. The condition Ready, for `kubectl wait`, is true once the phase is Done.
(Strimzi's phases are types of conditions, so nothing can be waited for in every state.) Everything
but the phase is read from the brokers at each step.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from logfleet.resources.plan import Reason
from logfleet.resources.rebalance import RebalanceSpec

from logfleet_operator.conditions import PROGRESSING, READY, condition_of
from logfleet_operator.names import Manifest

PROPOSAL_S: Final = 600
"""A proposal that nobody approved for so long is made again, because sizes have changed since."""


class Phase(StrEnum):
    PENDING = "Pending"
    PROPOSED = "Proposed"
    RUNNING = "Running"
    STOPPED = "Stopped"
    DONE = "Done"

    @property
    def has_ended(self) -> bool:
        return self in {Phase.STOPPED, Phase.DONE}


class Act(StrEnum):
    """The action of one step.

    PROPOSE: plan and report. STEP: start the moves that may start now. CALL_BACK: cancel moves
    under way. DELETE: delete the resource, as its spec asks.
    """

    NOTHING = "nothing"
    PROPOSE = "propose"
    STEP = "step"
    CALL_BACK = "call back"
    DELETE = "delete"


REASONS: Final = {
    Phase.PENDING: Reason.CLUSTER_NOT_READY,
    Phase.PROPOSED: Reason.WAITING_FOR_APPROVAL,
    Phase.RUNNING: Reason.PROGRESSING,
    Phase.STOPPED: Reason.STOPPED,
    Phase.DONE: Reason.READY,
}
"""The reason of the condition Ready in each phase."""


@dataclass(frozen=True, slots=True)
class PhaseDecision:
    """why: the sentence for the status; "" keeps the last one."""

    act: Act
    phase: Phase
    why: str = ""


def decide(
    spec: RebalanceSpec,
    phase: Phase,
    *,
    obstacle: str,
    proposal_s: float | None,
    ended_s: float | None,
) -> PhaseDecision:
    """The next step of a Rebalance.

    obstacle: why nothing may start now, "" if it may. proposal_s: seconds since this spec was
    planned, None if it was not. ended_s: seconds since the end, None if it has not ended.
    """
    if phase.has_ended:
        ttl = spec.ttl_seconds_after_finished
        is_over = ttl is not None and ended_s is not None and ended_s >= ttl
        return PhaseDecision(Act.DELETE if is_over else Act.NOTHING, phase)
    if spec.stop:
        if phase is Phase.RUNNING:
            return PhaseDecision(Act.CALL_BACK, Phase.STOPPED)
        return PhaseDecision(Act.NOTHING, Phase.STOPPED, "stopped before anything was moved")
    if obstacle:
        waiting = Phase.RUNNING if phase is Phase.RUNNING else Phase.PENDING
        return PhaseDecision(Act.NOTHING, waiting, f"waiting: {obstacle}")
    if spec.is_approved or phase is Phase.RUNNING:  # only `stop` ends what has started
        return PhaseDecision(Act.STEP, Phase.RUNNING)
    if phase is Phase.PROPOSED and proposal_s is not None and proposal_s < PROPOSAL_S:
        return PhaseDecision(Act.NOTHING, phase)
    return PhaseDecision(Act.PROPOSE, Phase.PROPOSED)


def obstacle(cluster: Manifest | None, name: str, before: Manifest | None) -> str:
    """Why nothing may start; "" if it may.

    cluster: None if there is none of that name. before: the Rebalance that goes first.
    """
    if cluster is None:
        return f"there is no Cluster {name} in this namespace"
    if "deletionTimestamp" in cluster["metadata"]:
        return f"Cluster {name} is being deleted"
    if cluster["spec"].get("paused"):
        return f"Cluster {name} is paused"
    if _status(cluster, PROGRESSING) == "True":
        return f"Cluster {name} is being changed: {cluster['status']['why']}"
    if _status(cluster, READY) != "True":
        return f"Cluster {name} is not Ready: {cluster.get('status', {}).get('why', 'it is new')}"
    if before is not None:
        return f"Rebalance {before['metadata']['name']} comes first"
    return ""


def phase_of(live: Mapping[str, Any]) -> Phase:
    """The phase in the status; Pending if this version does not know it."""
    phase = live.get("status", {}).get("phase")
    return Phase(phase) if phase in set(Phase) else Phase.PENDING


def comes_before(live: Manifest, others: Iterable[Manifest]) -> Manifest | None:
    """The approved Rebalance of the same Cluster that goes before this one.

    That is the running one, else the oldest. None if this one runs or is not approved yet.
    """
    if phase_of(live) is Phase.RUNNING or not _is_approved(live):
        return None
    rivals = [
        each
        for each in others
        if each["metadata"]["uid"] != live["metadata"]["uid"]
        and each["spec"]["clusterRef"]["name"] == live["spec"]["clusterRef"]["name"]
        and _is_approved(each)
        and not _is_wrong(each)
        and not phase_of(each).has_ended
        and (phase_of(each) is Phase.RUNNING or _creation_order(each) < _creation_order(live))
    ]
    return min(
        rivals,
        key=lambda each: (phase_of(each) is not Phase.RUNNING, *_creation_order(each)),
        default=None,
    )


def _is_wrong(live: Manifest) -> bool:
    """Whether the spec is invalid, so that nothing is done until somebody changes it."""
    ready = condition_of(live, READY)
    is_reported = ready is not None and ready["reason"] == Reason.INVALID
    return (
        is_reported and live["status"].get("observedGeneration") == live["metadata"]["generation"]
    )


def _is_approved(live: Manifest) -> bool:
    spec = live["spec"]
    return spec.get("approval") == "Auto" or bool(spec.get("approved"))


def _creation_order(live: Manifest) -> tuple[str, str]:
    return live["metadata"]["creationTimestamp"], live["metadata"]["uid"]


def _status(cluster: Manifest, kind: str) -> str:
    found = condition_of(cluster, kind)
    return "Unknown" if found is None else str(found["status"])
