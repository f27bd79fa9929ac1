"""Asks brokers which pods may be replaced now: /may-i at their admin port. SHELL.

The brokers know which replicas are in sync (`logfleet.controller.brokers.stop_check`). An answer
holds for that moment only, so the question is repeated before each step. `objection_of` interprets
an answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import aiohttp
import msgspec
from logfleet.client.admin import Admin
from logfleet.client.cluster import Client
from logfleet.client.errors import ClientError
from logfleet.resources.cluster import ADMIN_PORT, ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.observed import ObservedCluster, Pod, StopPermission
from logfleet_operator.clusters.rollout import next_wave
from logfleet_operator.names import BASE_LABEL, BROKER
from logfleet_operator.waiting import waiting_for_fleet

# For all questions of one step: a change of the spec must take effect within five seconds.
QUESTIONS_S_MAX: Final = 3.0
ANSWER_S_MAX: Final = 1.0
NOBODY_ANSWERS: Final = f"no broker answers at port {ADMIN_PORT} (/may-i) whether it may stop"


class ReplicaInfo(msgspec.Struct, frozen=True):
    """A partition that forbids the stop. rule: why. can_heal: waiting may help."""

    topic: str
    partition: int
    rule: str = ""
    can_heal: bool = True


class MayIAnswer(msgspec.Struct, frozen=True):
    """As `logfleet.node.decisions.may_i_answer.MayIAnswer`.

    forbidden: the first of `forbidden_count`. curable_count: None from brokers of an earlier
    version.
    """

    may: bool
    forbidden: list[ReplicaInfo] = []
    forbidden_count: int = 0
    curable_count: int | None = None

    @property
    def curable(self) -> int:
        """Partitions for which waiting may help; partitions that are not named count as such."""
        if self.curable_count is not None:
            return self.curable_count
        named = sum(each.can_heal for each in self.forbidden)
        return named + self.forbidden_count - len(self.forbidden)


class Deciders(Protocol):
    """The brokers of a fleet."""

    async def may_stop(self, addresses: Sequence[str], brokers: Sequence[int]) -> MayIAnswer | None:
        """Whether these brokers may stop together; None if nobody answers.

        addresses: HOST:PORT; the first one that answers decides.
        """
        ...

    async def serving(self, bootstrap: str) -> frozenset[int] | None:
        """Ids of the brokers that are registered and not fenced; None if nobody answers."""
        ...


class AdminPorts:
    """Deciders over HTTP; fenced brokers are read by Kafka's DescribeCluster (KIP-1073)."""

    async def may_stop(self, addresses: Sequence[str], brokers: Sequence[int]) -> MayIAnswer | None:
        query = [("stop", str(broker)) for broker in brokers]
        timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for address in addresses:
                try:
                    url = f"http://{address}/may-i"
                    with waiting_for_fleet():
                        async with session.get(url, params=query) as response:
                            if response.status == 200:
                                return msgspec.json.decode(await response.read(), type=MayIAnswer)
                except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
                    continue  # this broker is not ready or gone; ask the next one
        return None

    async def serving(self, bootstrap: str) -> frozenset[int] | None:
        milliseconds = int(ANSWER_S_MAX * 1000)
        client = Client(
            bootstrap,
            client_id=names.FIELD_MANAGER,
            request_timeout_ms=milliseconds,
            timeout_ms=milliseconds,
        )
        try:
            with waiting_for_fleet():
                found = await Admin(client).describe_cluster(include_fenced=True)
        except ClientError:
            return None
        finally:
            client.close()
        return frozenset(broker.id for broker in found.brokers) - found.fenced


async def ask(
    deciders: Deciders, cluster: ClusterResource, observed: ObservedCluster
) -> StopPermission:
    """Ask for the next wave: for all of it, else its first half, and so on down to one pod.

    A pod that is not ready and whose broker is fenced may go in any case: it serves nobody, and its
    present template may be the cause. So may one pod if no broker is ready to be asked.
    """
    wave = next_wave(observed, _broker_sets(observed))
    if not wave or cluster.spec.paused:
        return StopPermission()
    leaving = {pod.name for pod in wave}
    service = f"{names.brokers_service(cluster.metadata.name)}.{cluster.metadata.namespace}.svc"
    others = [pod for pod in observed.of_component(BROKER) if pod.ready and not pod.deleting]
    if not others:
        return StopPermission(frozenset([wave[0].name]))
    others.sort(key=lambda pod: (pod.name in leaving, pod.name))
    addresses = [f"{pod.name}.{service}:{ADMIN_PORT}" for pod in others]
    ids = {pod.name: _broker_id(observed, pod) for pod in wave}
    try:
        async with asyncio.timeout(QUESTIONS_S_MAX):
            if not wave[0].ready:
                serving = await deciders.serving(manifests.bootstrap_address(cluster))
                if serving is not None and ids[wave[0].name] not in serving:
                    return StopPermission(frozenset([wave[0].name]))
            return await _largest_allowed_part(deciders, addresses, ids)
    except TimeoutError:
        return StopPermission(objection=NOBODY_ANSWERS)


async def _largest_allowed_part(
    deciders: Deciders, addresses: Sequence[str], ids: Mapping[str, int]
) -> StopPermission:
    """Ask for fewer and fewer of the wave. ids: broker ids by pod."""
    wave, objection = list(ids), ""
    while wave:
        answer = await deciders.may_stop(addresses, [ids[name] for name in wave])
        if answer is None:
            return StopPermission(objection=NOBODY_ANSWERS)
        against = objection_of(answer, alone=len(wave) == 1)
        if not against:
            return StopPermission(frozenset(wave), objection)
        objection = against
        wave = wave[: len(wave) // 2]
    return StopPermission(objection=objection)


def _broker_sets(observed: ObservedCluster) -> list[str]:
    """StatefulSets of brokers, in the order of their ids, like the plan."""
    bases = {}
    for (kind, name), live in observed.objects.items():
        labels = live["metadata"]["labels"]
        if kind == "StatefulSet" and labels.get(names.COMPONENT_LABEL) == BROKER:
            bases[name] = int(labels.get(BASE_LABEL, 0))
    return sorted(bases, key=bases.__getitem__)


def _broker_id(observed: ObservedCluster, pod: Pod) -> int:
    stateful_set, _, ordinal = pod.name.rpartition("-")
    live = observed.get("StatefulSet", stateful_set)
    assert live is not None, "a wave is made of pods of sets"
    return int(live["metadata"]["labels"][BASE_LABEL]) + int(ordinal)


def objection_of(answer: MayIAnswer, *, alone: bool) -> str:
    """The objection to the stop; "" if there is none.

    A topic with one replica is offline whenever its broker is: it forbids that several brokers go
    together, not that one does (Strimzi's and Kafka's own rolls ignore it as well).
    """
    if answer.may or (alone and not answer.curable):
        return ""
    count = answer.curable if alone else answer.forbidden_count
    counts = [each for each in answer.forbidden if each.can_heal or not alone]
    first = (counts or answer.forbidden)[0]
    more = f" and {count - 1} more" if count > 1 else ""
    return f"{first.topic}-{first.partition}{more}: {first.rule}"
