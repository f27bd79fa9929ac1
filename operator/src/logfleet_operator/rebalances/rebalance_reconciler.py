"""Takes a Rebalance one step further, by what the brokers report at each step. SHELL.

Only the time of the last step is kept here: when an operator dies midway, the next one reads the
phase and asks the brokers.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from logfleet.balance.rebalancing import Goal
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.plan import Reason
from logfleet.resources.rebalance import RebalanceResource

from logfleet_operator import conditions
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.cluster_reader import accepted_cluster
from logfleet_operator.clusters.moves import Movers, MovesUnavailable
from logfleet_operator.documents import ignored_fields, read_cluster, read_rebalance
from logfleet_operator.event_text import EventText
from logfleet_operator.events import Events
from logfleet_operator.kube import Kube
from logfleet_operator.logs import log_ignored_fields
from logfleet_operator.names import Manifest
from logfleet_operator.ownership import Ownership
from logfleet_operator.rebalances import rebalance_status
from logfleet_operator.rebalances.phases import (
    REASONS,
    Act,
    Phase,
    PhaseDecision,
    comes_before,
    decide,
    obstacle,
    phase_of,
)
from logfleet_operator.settings import Settings
from logfleet_operator.writes import timestamp, write_status

STEP_S: Final = 2.0
WAIT_S: Final = 5.0
"""Interval between checks: the conditions that a Rebalance waits for cause no event of it."""

log: structlog.stdlib.BoundLogger = structlog.get_logger()


class RebalanceReconciler:
    """Carries out Rebalances. movers: shared with the ClusterReconciler."""

    def __init__(
        self,
        kube: Kube,
        settings: Settings,
        movers: Movers,
        *,
        ownership: Ownership,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._kube = kube
        self._movers = movers
        self._ownership = ownership
        self._monotonic = monotonic
        self._now = now or (lambda: datetime.now(UTC))
        self._events = Events(kube, settings.identity, now=self._now)
        self._stepped: dict[str, float] = {}

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """As ClusterReconciler.reconcile."""
        live = await self._kube.get("Rebalance", namespace, name)
        if live is None or "deletionTimestamp" in live["metadata"]:
            return None
        uid = live["metadata"]["uid"]
        pause = self._stepped.get(uid, float("-inf")) + STEP_S - self._monotonic()
        if pause > 0 and not live["spec"].get("stop"):
            return pause  # the event comes from the status that the last step wrote
        cluster_name = live["spec"]["clusterRef"]["name"]
        found = await self._kube.get("Cluster", namespace, cluster_name)
        if found is not None and not self._ownership.has(found):
            return WAIT_S
        now = timestamp(self._now())
        try:
            log_ignored_fields("Rebalance", tuple(ignored_fields(live)))
            rebalance = read_rebalance(live)
        except InvalidResourceError as error:
            status = conditions.failed(live, Reason.INVALID, str(error), now)
            await self._write(live, status)
            return None
        others = await self._kube.list("Rebalance", namespace)
        why_not = obstacle(found, cluster_name, comes_before(live, others))
        decision = decide(
            rebalance.spec,
            phase_of(live),
            obstacle=why_not,
            proposal_s=self._proposal_age_s(live),
            ended_s=self._age_s(live.get("status", {}).get("finishedAt")),
        )
        if decision.act is Act.DELETE:
            await self._kube.delete("Rebalance", namespace, name, uid)
            return None
        try:
            decision, fields = await self._act(rebalance, live, found, decision, now)
        except MovesUnavailable as error:
            log.warning("rebalance_waits", name=name, error=str(error))
            phase = phase_of(live)
            decision, fields = PhaseDecision(Act.NOTHING, phase, f"no broker does it: {error}"), {}
        await self._report(live, decision, fields, now)
        return self._after(rebalance, decision)

    def _after(self, rebalance: RebalanceResource, decision: PhaseDecision) -> float | None:
        if decision.phase.has_ended:
            self._stepped.pop(rebalance.metadata.uid, None)
            ttl = rebalance.spec.ttl_seconds_after_finished
            return None if ttl is None else max(1.0, float(ttl))
        return STEP_S if decision.phase is Phase.RUNNING else WAIT_S

    async def _act(
        self,
        rebalance: RebalanceResource,
        live: Manifest,
        found: Manifest | None,
        decision: PhaseDecision,
        now: str,
    ) -> tuple[PhaseDecision, dict[str, Any]]:
        """Carry out the decision.

        Returns the decision for the status, and the status fields that change.

        Raises MovesUnavailable.
        """
        if decision.act is Act.NOTHING:
            ended = decision.phase.has_ended and "finishedAt" not in live.get("status", {})
            return decision, {"finishedAt": now} if ended else {}
        if found is None:  # its Cluster is gone, so there is nothing left to stop
            return PhaseDecision(Act.NOTHING, Phase.STOPPED, "its Cluster is gone"), {
                "finishedAt": now
            }
        try:
            cluster = await accepted_cluster(self._kube, found) or read_cluster(found)
        except InvalidResourceError as error:
            raise MovesUnavailable(f"Cluster {found['metadata']['name']}: {error}") from error
        bootstrap = manifests.bootstrap_address(cluster)
        goal = Goal(
            excluded=frozenset(rebalance.spec.topics.exclude),
            per_broker=rebalance.spec.moves_per_broker,
            throttle=rebalance.spec.bytes_per_s,
        )
        if decision.act is Act.CALL_BACK:
            refused = await self._movers.call_back(bootstrap, goal)
            why = "; ".join(("what was under way was called back", *refused[:3]))
            return PhaseDecision(Act.NOTHING, Phase.STOPPED, why), {"finishedAt": now}
        if decision.act is Act.PROPOSE:
            plan = await self._movers.propose(bootstrap, goal)
            made = rebalance_status.proposal(plan) | {"at": now}
            return PhaseDecision(Act.NOTHING, Phase.PROPOSED, rebalance_status.proposed(plan)), {
                "proposal": made
            }
        return await self._step(bootstrap, goal, live, now)

    async def _step(
        self, bootstrap: str, goal: Goal, live: Manifest, now: str
    ) -> tuple[PhaseDecision, dict[str, Any]]:
        status = live.get("status", {})
        fields: dict[str, Any] = {}
        if phase_of(live) is not Phase.RUNNING:  # plan again: the proposal may be old
            plan = await self._movers.propose(bootstrap, goal)
            fields = {"proposal": rebalance_status.proposal(plan) | {"at": now}, "startedAt": now}
        made = await self._movers.step(bootstrap, goal)
        self._stepped[live["metadata"]["uid"]] = self._monotonic()
        started = fields.get("startedAt") or status.get("startedAt") or now
        planned = (fields.get("proposal") or status.get("proposal") or {}).get("bytes", 0)
        fields["progress"] = rebalance_status.progress(
            made,
            status.get("progress", {}),
            planned,
            self._age_s(started) or 0.0,
            goal.throttle or 0,
        )
        if made.is_over:
            return PhaseDecision(Act.NOTHING, Phase.DONE, rebalance_status.done(made)), fields | {
                "finishedAt": now
            }
        return PhaseDecision(Act.NOTHING, Phase.RUNNING, rebalance_status.running(made)), fields

    def _proposal_age_s(self, live: Manifest) -> float | None:
        """None if the proposal was for another generation of the spec."""
        status = live.get("status", {})
        if status.get("observedGeneration") != live["metadata"]["generation"]:
            return None
        return self._age_s(status.get("proposal", {}).get("at"))

    def _age_s(self, moment: str | None) -> float | None:
        if moment is None:
            return None
        return (self._now() - datetime.fromisoformat(moment)).total_seconds()

    async def _report(
        self, live: Manifest, decision: PhaseDecision, fields: dict[str, Any], now: str
    ) -> None:
        before = live.get("status", {})
        why = decision.why or before.get("why", "")
        ready = conditions.condition(
            live,
            conditions.READY,
            true=decision.phase is Phase.DONE,
            reason=REASONS[decision.phase],
            message=why,
            now=now,
        )
        status = {
            **before,
            **fields,
            "observedGeneration": live["metadata"]["generation"],
            "phase": str(decision.phase),
            "why": why,
            "conditions": [ready],
        }
        await self._write(live, status)
        if before.get("phase") != status["phase"]:
            about = f"{status['phase']}/{live['metadata']['generation']}"
            event = EventText("Normal", f"Rebalance{status['phase']}", why, about)
            await self._events.write(live, event)

    async def _write(self, live: Manifest, status: dict[str, Any]) -> None:
        if live.get("status", {}) != status:
            await write_status(self._kube, live, status)
