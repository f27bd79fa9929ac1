"""The ledger: which topics exist because of which Topic resource. PURE.

A finalizer would hang a namespace whose operator is gone, so Topics have none. Instead a line is
written before a topic is created or adopted, in ConfigMaps beside the Cluster and owned by it; a
line whose resource has vanished is what deletes a topic, also if it vanished while no operator was
running. Because absence is weak evidence, `judge` asks for more before anything is deleted:

- CRD and Cluster are the very ones of the line (a reinstalled CRD takes all its objects along),
  nothing is being deleted around it, and the namespace is this operator's;
- a delete event for this very resource was seen, and a reading finds nothing: that is carried out,
  be it one or five hundred. Or nobody saw it, and readings half a minute apart miss it;
- of those that nobody saw, not too many at once; else a person confirms with an annotation on the
  Cluster. Each such line is held until then, also when the others' Topics were made again: who applies a directory of
  Topics anew brings them back one by one, and must not come below the limit on the way.

Whether the topic goes or stays is said by the line, whose policy follows its Topic in every pass
and in the delete event, before anything is told in status. What was written and deleted again
while no operator watched cannot be known: then the policy counts that an operator saw last.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import msgspec
from logfleet.resources.topic import DeletionPolicy, TopicResource

from logfleet_operator import names
from logfleet_operator.names import Manifest

# A ConfigMap holds 1 MiB, a line about 300 bytes: 16 of them carry some 40,000 topics.
SHARDS: Final = 16
CONFIRM_WITHOUT_EVENT_S: Final = 30.0
# A reading may be ahead of the watch; what is missing for longer, nobody saw go.
EVENT_WITHIN_S: Final = 2.0
MISSING_AT_ONCE_MAX: Final = 3
MISSING_SHARE_MAX: Final = Fraction(1, 20)
# How a topic's name begins whose key has one "-" more.
_DOTS: Final = re.compile(r"-*\.\.")


class Line(msgspec.Struct, frozen=True):
    """One topic. uid, name: of its Topic resource; crd, cluster: uids. topic_id: "" if not known.

    policy: the Topic's deletionPolicy as it was seen last.
    deleting: the decision to delete the topic was taken; it is carried out whatever happens next.
    held: the Topic is gone and its topic was not deleted for that: only a confirmation deletes it.
    """

    uid: str
    name: str
    policy: DeletionPolicy
    crd: str
    cluster: str
    topic_id: str = ""
    deleting: bool = False
    held: bool = False


class LedgerDamaged(Exception):
    """A line is none, since somebody edited it. What it said must be known before anything is done."""

    def __init__(self, config_map: str, key: str, why: str) -> None:
        super().__init__(
            f"ConfigMap {config_map}, key {key}, is no line of the ledger ({why}): no topic of this "
            "Cluster is made, changed or deleted; correct the line, or remove the key, then the "
            "topic stays and its Topic takes it over anew"
        )


Ledger = dict[str, Line]
"""Topic name -> line."""


def shard_of(topic: str) -> int:
    return hashlib.sha256(topic.encode()).digest()[0] % SHARDS


def shard_name(cluster: str, shard: int) -> str:
    return f"{cluster}-topics-{shard}"


def _key_of(topic: str) -> str:
    """The topic's key in a ConfigMap, which may not begin with ".." (Kubernetes: IsConfigMapKey)."""
    return f"-{topic}" if _DOTS.match(topic) else topic


def _topic_of(key: str) -> str:
    """The inverse of `_key_of`."""
    return key[1:] if _DOTS.match(key) else key


def read(cluster: str, config_maps: Iterable[Manifest]) -> Ledger:
    """The Cluster's lines; copies of its ConfigMaps say nothing. Raises LedgerDamaged."""
    own = {shard_name(cluster, shard) for shard in range(SHARDS)}
    lines: Ledger = {}
    for live in config_maps:
        name = live["metadata"]["name"]
        for key, text in (live.get("data") or {}).items() if name in own else ():
            try:
                lines[_topic_of(key)] = msgspec.json.decode(text, type=Line)
            except msgspec.DecodeError as error:
                raise LedgerDamaged(name, key, str(error)) from error
    return lines


def shards(cluster: str, lines: Ledger) -> list[Manifest]:
    """The ConfigMaps that hold `lines`; shards without lines have no data."""
    contents: list[dict[str, str]] = [{} for _ in range(SHARDS)]
    for topic, line in sorted(lines.items()):
        contents[shard_of(topic)][_key_of(topic)] = msgspec.json.encode(line).decode()
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": shard_name(cluster, shard),
                "labels": names.labels(cluster, "ledger"),
            },
            "data": data,
        }
        for shard, data in enumerate(contents)
    ]


def policy_of(document: Mapping[str, Any]) -> DeletionPolicy:
    """What the Topic says about its topic's end, be the rest of it valid or not."""
    return "Delete" if document["spec"].get("deletionPolicy", "Delete") == "Delete" else "Retain"


def follow(
    lines: Ledger,
    live: Mapping[str, DeletionPolicy],
    last_words: Mapping[str, DeletionPolicy],
    held: frozenset[str],
) -> Ledger:
    """The lines, each with its Topic's policy; none is held whose Topic exists.

    held: uids of lines that were to be held before and could not be written then. live: uid -> policy of Topics that exist; last_words: of those whose delete event was seen, as
    it was then. The one is newer than what a line says, so it counts either way; the other too, but
    it can no longer be taken back: it saves a topic and dooms none.
    """
    policies = dict(live)
    policies |= {uid: policy for uid, policy in last_words.items() if policy == "Retain"}
    return {
        topic: msgspec.structs.replace(
            line,
            policy=policies.get(line.uid, line.policy),
            held=(line.held or line.uid in held) and line.uid not in live,
        )
        for topic, line in lines.items()
    }


def line_for(topic: TopicResource, crd: str, cluster: str, topic_id: str) -> Line:
    return Line(
        uid=topic.metadata.uid,
        name=topic.metadata.name,
        policy=topic.spec.deletion_policy,
        crd=crd,
        cluster=cluster,
        topic_id=topic_id,
    )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """crd, cluster: uids as they are now. calm: nothing around is being deleted, and in scope.

    confirmation: the Cluster's confirming annotation, "" without.
    """

    crd: str
    cluster: str
    calm: bool
    confirmation: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for the end of resources.

    gone: uids for which a delete event was seen and a reading of that very object found nothing.
    missed_s: uid -> seconds since a list first missed it.
    """

    gone: frozenset[str] = frozenset()
    missed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Topic names: to be deleted now; only to be forgotten (Retain); not yet certain.

    blocked: why nothing is deleted though something is missing, and what to do; "" otherwise.
    held: the topics that this keeps.
    """

    delete: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    blocked: str = ""
    held: tuple[str, ...] = ()


def judge(
    lines: Ledger, alive: frozenset[str], around: Surroundings, evidence: Evidence
) -> Judgement:
    """What becomes of topics whose resource is not among `alive` (uids of this Cluster's Topics)."""
    decided = tuple(sorted(topic for topic, line in lines.items() if line.deleting))
    missing = {
        topic: line
        for topic, line in sorted(lines.items())
        if line.uid not in alive and not line.deleting
    }
    if not missing:
        return Judgement(delete=decided if around.calm else ())
    if not around.calm:
        return Judgement(uncertain=tuple(missing))
    strangers = [
        topic
        for topic, line in missing.items()
        if line.crd != around.crd or line.cluster != around.cluster
    ]
    own = {topic: line for topic, line in missing.items() if topic not in strangers}
    seen = [topic for topic, line in own.items() if line.uid in evidence.gone]

    def missed(seconds: float) -> list[str]:
        """Whose end nobody saw, for so long."""
        return [
            topic
            for topic, line in own.items()
            if topic not in seen and evidence.missed_s.get(line.uid, 0.0) >= seconds
        ]

    certain = [*seen, *missed(CONFIRM_WITHOUT_EVENT_S)]
    uncertain = tuple(topic for topic in own if topic not in certain)
    forget = tuple(topic for topic in certain if own[topic].policy == "Retain")
    doomed = tuple(topic for topic in seen if topic not in forget)
    unseen = [topic for topic in missed(EVENT_WITHIN_S) if topic not in forget]
    blocked, wait = _hold(lines, [*strangers, *unseen], strangers, around.confirmation)
    if blocked:
        held = (*strangers, *unseen)
        return Judgement((*decided, *doomed), forget, uncertain, blocked, held)
    if wait and uncertain:
        return Judgement((*decided, *doomed), forget, uncertain)
    ripe = tuple(topic for topic in unseen if topic not in uncertain)
    return Judgement((*decided, *doomed, *ripe), forget, uncertain)


def _hold(
    lines: Ledger, missing: list[str], strangers: list[str], confirmation: str
) -> tuple[str, bool]:
    """Why nothing is deleted ("" if nothing forbids it), and whether all must be certain first.

    A confirmation names one set of lines, so they go together.
    """
    if strangers:
        told = (
            f"{len(strangers)} topics lost their Topics together with the CRD or the Cluster "
            f"({_some(strangers)}): they stay; make Topics for them again"
        )
        return told, True
    few = not missing or len(missing) <= max(
        MISSING_AT_ONCE_MAX, int(len(lines) * MISSING_SHARE_MAX)
    )
    if few and not any(lines[topic].held for topic in missing):
        return "", False
    token = confirmation_for(lines, missing)
    if confirmation == token:
        return "", True
    told = (
        f"Topics gone at once: {len(missing)} ({_some(missing)}): their topics stay; make them "
        "again to keep the topics with their records, or annotate the Cluster with "
        f"{names.CONFIRM_ANNOTATION}={token} to delete the topics"
    )
    return told, True


def confirmation_for(lines: Ledger, missing: Iterable[str]) -> str:
    """The word that confirms the deletion of exactly these lines."""
    uids = sorted(lines[topic].uid for topic in missing)
    return hashlib.sha256(json.dumps(uids).encode()).hexdigest()[:12]


def _some(topics: list[str]) -> str:
    return ", ".join(topics[:3]) + (" ..." if len(topics) > 3 else "")
