"""Asks brokers which of the pods that are to be replaced may go now: /may-i at their admin port. SHELL.

The brokers know what their partitions have in sync (`logfleet.control.brokers.may_i`); what they answer is
about this moment, so it is asked anew before each step.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import aiohttp
import msgspec
from logfleet.resources.cluster import ADMIN_PORT, ClusterResource

from logfleet_operator import names
from logfleet_operator.clusters.observed import Leave, Observed, Pod
from logfleet_operator.clusters.rollout import next_wave
from logfleet_operator.names import BASE_LABEL, BROKER

ANSWER_S_MAX: Final = 5.0
# Brokers that are asked, one after the other, until one answers.
ASKED_MAX: Final = 5


class Partition(msgspec.Struct, frozen=True):
    """One that speaks against it, and why. can_heal: waiting may help."""

    topic: str
    partition: int
    rule: str = ""
    can_heal: bool = True


class Answer(msgspec.Struct, frozen=True):
    """As `logfleet.node.decisions.may_i.Answer`: `forbidden` are the first of `forbidden_count`."""

    may: bool
    forbidden: list[Partition] = []
    forbidden_count: int = 0


class Deciders(Protocol):
    """The brokers of a fleet."""

    async def may_stop(self, hosts: Sequence[str], brokers: Sequence[int]) -> Answer | None:
        """Whether these may stop together, as the first of `hosts` that answers says; None if none does."""
        ...


class AdminPorts:
    """Deciders over HTTP."""

    async def may_stop(self, hosts: Sequence[str], brokers: Sequence[int]) -> Answer | None:
        query = [("stop", str(broker)) for broker in brokers]
        timeout = aiohttp.ClientTimeout(total=ANSWER_S_MAX)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for host in hosts[:ASKED_MAX]:
                try:
                    url = f"http://{host}:{ADMIN_PORT}/may-i"
                    async with session.get(url, params=query) as response:
                        if response.status == 200:
                            return msgspec.json.decode(await response.read(), type=Answer)
                except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
                    continue  # not ready, or gone: the next one may know
        return None


async def ask(deciders: Deciders, cluster: ClusterResource, observed: Observed) -> Leave:
    """About the wave that is next: all of it, else the first half, and so on down to one.

    A topic of one replica is away as long as its broker is, whenever that is: it forbids that several
    go together, not that one does (Strimzi's and Kafka's own rolls ignore it as well).
    """
    wave = list(next_wave(observed, _sets_of(observed)))
    if not wave:
        return Leave()
    leaving = {pod.name for pod in wave}
    service = f"{names.brokers_service(cluster.metadata.name)}.{cluster.metadata.namespace}.svc"
    others = [pod for pod in observed.of_component(BROKER) if pod.ready and not pod.deleting]
    others.sort(key=lambda pod: (pod.name in leaving, pod.name))
    hosts = [f"{pod.name}.{service}" for pod in others]
    objection = ""
    while wave:
        answer = await deciders.may_stop(hosts, [_broker_id(observed, pod) for pod in wave])
        if answer is None:
            return Leave()
        against = _objection(answer, alone=len(wave) == 1)
        if not against:
            return Leave(frozenset(pod.name for pod in wave), objection)
        objection = against
        wave = wave[: len(wave) // 2]
    return Leave(frozenset(), objection)


def _sets_of(observed: Observed) -> list[str]:
    """Of brokers, in the order of their ids, as the plan has them."""
    bases = {}
    for (kind, name), live in observed.objects.items():
        labels = live["metadata"]["labels"]
        if kind == "StatefulSet" and labels.get(names.COMPONENT_LABEL) == BROKER:
            bases[name] = int(labels.get(BASE_LABEL, 0))
    return sorted(bases, key=bases.__getitem__)


def _broker_id(observed: Observed, pod: Pod) -> int:
    stateful_set, _, ordinal = pod.name.rpartition("-")
    live = observed.get("StatefulSet", stateful_set)
    assert live is not None, "a wave is made of pods of sets"
    return int(live["metadata"]["labels"][BASE_LABEL]) + int(ordinal)


def _objection(answer: Answer, *, alone: bool) -> str:
    """What speaks against it and counts; empty if nothing does."""
    if answer.may:
        return ""
    counts = [each for each in answer.forbidden if each.can_heal or not alone]
    if not counts:
        return ""
    first = counts[0]
    more = f" and {answer.forbidden_count - 1} more" if answer.forbidden_count > 1 else ""
    return f"{first.topic}-{first.partition}{more}: {first.rule}"
