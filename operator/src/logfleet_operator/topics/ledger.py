"""The ledger: which topics exist because of which Topic resource. PURE.

A finalizer would hang a namespace whose operator is gone, so Topics have none. Instead a line is
written before a topic is created or adopted, in ConfigMaps that the Cluster owns. A topic is
deleted because the resource of its line is gone, even if that was deleted while no operator ran.
Since absence is weak evidence, `decide_deletions` requires more before it deletes:

- CRD and Cluster are the ones in the line (a reinstalled CRD loses all its objects), nothing around
is being deleted, and the namespace is this operator's;
- the delete event of this resource was seen, and a read finds nothing: then its topic is deleted,
be it one or five hundred. Or nobody saw an event, and reads half a minute apart miss it;
- of the deletions that nobody saw, not too many at once; else a person confirms them with an
annotation on the Cluster. Each such line is held until then, even if the others' Topics are created
again: somebody who re-applies a directory of Topics brings them back one by one, and must not fall
below the limit on the way.

Whether the topic is deleted or kept is decided by the line, whose policy follows its Topic in every
pass and in the delete event, before the status is written. A change that was made and deleted while
no operator watched cannot be known: then the last policy that an operator saw counts.
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

# A ConfigMap holds 1 MiB, a line takes about 300 bytes: 16 of them hold some 40,000 topics.
SHARDS: Final = 16
CONFIRM_WITHOUT_EVENT_S: Final = 30.0
# A read may find a Topic missing before the watch delivers its delete event. No event comes for one
# that is missing for longer than this: it was deleted while no operator watched.
EVENT_WITHIN_S: Final = 2.0
MISSING_AT_ONCE_MAX: Final = 3
MISSING_SHARE_MAX: Final = Fraction(1, 20)
# Topic names that match get one more "-" in front as their key.
_DOTS: Final = re.compile(r"-*\.\.")


class LedgerLine(msgspec.Struct, frozen=True):
    """The line of one topic. uid, name: of its Topic resource; crd, cluster: uids.

    policy: the Topic's last seen deletionPolicy. topic_id: "" if unknown.
    deleting: the topic is to be deleted, whatever happens next.
    held: its Topic is gone, but only a confirmation deletes the topic.
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
    """Somebody edited a line so that it cannot be read; its content must not be guessed."""

    def __init__(self, config_map: str, key: str, why: str) -> None:
        super().__init__(
            f"ConfigMap {config_map}, key {key}, is no line of the ledger ({why}): no topic of "
            "this Cluster is made, changed or deleted; correct the line, or remove the key, then "
            "the topic stays and its Topic takes it over again"
        )


Ledger = dict[str, LedgerLine]
"""Topic name -> line."""


def shard_of(topic: str) -> int:
    return hashlib.sha256(topic.encode()).digest()[0] % SHARDS


def shard_name(cluster: str, shard: int) -> str:
    return f"{cluster}-topics-{shard}"


def _key_of(topic: str) -> str:
    """The topic's key in a ConfigMap; it must not start with ".." (Kubernetes: IsConfigMapKey)."""
    return f"-{topic}" if _DOTS.match(topic) else topic


def _topic_of(key: str) -> str:
    """The topic's name for a key: the inverse of `_key_of`."""
    return key[1:] if _DOTS.match(key) else key


def read(cluster: str, config_maps: Iterable[Manifest]) -> Ledger:
    """The Cluster's lines; copies of its ConfigMaps do not count. Raises LedgerDamaged."""
    own = {shard_name(cluster, shard) for shard in range(SHARDS)}
    lines: Ledger = {}
    for live in config_maps:
        name = live["metadata"]["name"]
        for key, text in (live.get("data") or {}).items() if name in own else ():
            try:
                lines[_topic_of(key)] = msgspec.json.decode(text, type=LedgerLine)
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
    """The Topic's deletion policy, whether or not the rest of it is valid."""
    return "Delete" if document["spec"].get("deletionPolicy", "Delete") == "Delete" else "Retain"


def follow(
    lines: Ledger,
    live: Mapping[str, DeletionPolicy],
    deleted_policies: Mapping[str, DeletionPolicy],
    held: frozenset[str],
) -> Ledger:
    """The lines, each with its Topic's current policy; a line whose Topic exists is not held.

    held: uids of lines that were to be held but could not be written. live: uid -> policy of
    existing Topics, which is newer than the line's. deleted_policies: uid -> policy in the delete
    event that was seen. It cannot be taken back any more, so it may keep a topic, not delete one.
    """
    policies = dict(live)
    policies |= {uid: policy for uid, policy in deleted_policies.items() if policy == "Retain"}
    return {
        topic: msgspec.structs.replace(
            line,
            policy=policies.get(line.uid, line.policy),
            held=(line.held or line.uid in held) and line.uid not in live,
        )
        for topic, line in lines.items()
    }


def line_for(topic: TopicResource, crd: str, cluster: str, topic_id: str) -> LedgerLine:
    return LedgerLine(
        uid=topic.metadata.uid,
        name=topic.metadata.name,
        policy=topic.spec.deletion_policy,
        crd=crd,
        cluster=cluster,
        topic_id=topic_id,
    )


@dataclass(frozen=True, slots=True)
class DeletionPreconditions:
    """Further conditions for the deletion of a topic.

    crd, cluster: the present uids. calm: nothing around is being deleted, and the namespace is in
    scope. confirmation: the Cluster's confirming annotation, "" without.
    """

    crd: str
    cluster: str
    calm: bool
    confirmation: str = ""


@dataclass(frozen=True, slots=True)
class DeletionEvidence:
    """Evidence that resources were deleted.

    gone: uids with a delete event, whose object a read did not find. missed_s: uid -> seconds since
    a list first missed it.
    """

    gone: frozenset[str] = frozenset()
    missed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletionDecision:
    """Names of topics: to delete now; to drop from the ledger only (Retain); not yet certain.

    blocked: why missing resources' topics are not deleted, and what to do; "" otherwise. held: the
    topics that this keeps.
    """

    delete: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()
    blocked: str = ""
    held: tuple[str, ...] = ()


def decide_deletions(
    lines: Ledger, alive: frozenset[str], around: DeletionPreconditions, evidence: DeletionEvidence
) -> DeletionDecision:
    """Decide about topics whose resource is not in `alive` (uids of this Cluster's Topics)."""
    decided = tuple(sorted(topic for topic, line in lines.items() if line.deleting))
    missing = {
        topic: line
        for topic, line in sorted(lines.items())
        if line.uid not in alive and not line.deleting
    }
    if not missing:
        return DeletionDecision(delete=decided if around.calm else ())
    if not around.calm:
        return DeletionDecision(uncertain=tuple(missing))
    foreign = [
        topic
        for topic, line in missing.items()
        if line.crd != around.crd or line.cluster != around.cluster
    ]
    own = {topic: line for topic, line in missing.items() if topic not in foreign}
    seen = [topic for topic, line in own.items() if line.uid in evidence.gone]

    def missed(seconds: float) -> list[str]:
        """Topics whose resource has been missing for the whole period without a delete event."""
        return [
            topic
            for topic, line in own.items()
            if topic not in seen and evidence.missed_s.get(line.uid, 0.0) >= seconds
        ]

    certain = [*seen, *missed(CONFIRM_WITHOUT_EVENT_S)]
    uncertain = tuple(topic for topic in own if topic not in certain)
    forget = tuple(topic for topic in certain if own[topic].policy == "Retain")
    seen_deleted = tuple(topic for topic in seen if topic not in forget)
    unseen = [topic for topic in missed(EVENT_WITHIN_S) if topic not in forget]
    blocked, wait = _why_held(lines, [*foreign, *unseen], foreign, around.confirmation)
    if blocked:
        held = (*foreign, *unseen)
        return DeletionDecision((*decided, *seen_deleted), forget, uncertain, blocked, held)
    if wait and uncertain:
        return DeletionDecision((*decided, *seen_deleted), forget, uncertain)
    confirmed = tuple(topic for topic in unseen if topic not in uncertain)
    return DeletionDecision((*decided, *seen_deleted, *confirmed), forget, uncertain)


def _why_held(
    lines: Ledger, missing: list[str], foreign: list[str], confirmation: str
) -> tuple[str, bool]:
    """Why nothing is deleted ("" if nothing forbids it), and whether all must be certain first.

    A confirmation names one set of lines, so these are deleted together.
    """
    if foreign:
        message = (
            f"{len(foreign)} topics lost their Topics together with the CRD or the Cluster "
            f"({_first_few(foreign)}): they stay; make Topics for them again"
        )
        return message, True
    few = not missing or len(missing) <= max(
        MISSING_AT_ONCE_MAX, int(len(lines) * MISSING_SHARE_MAX)
    )
    if few and not any(lines[topic].held for topic in missing):
        return "", False
    token = confirmation_for(lines, missing)
    if confirmation == token:
        return "", True
    message = (
        f"Topics gone at once: {len(missing)} ({_first_few(missing)}): their topics stay; make "
        "them again to keep the topics with their records, or annotate the Cluster with "
        f"{names.CONFIRM_ANNOTATION}={token} to delete the topics"
    )
    return message, True


def confirmation_for(lines: Ledger, missing: Iterable[str]) -> str:
    """The annotation's value that confirms the deletion of exactly these lines."""
    uids = sorted(lines[topic].uid for topic in missing)
    return hashlib.sha256(json.dumps(uids).encode()).hexdigest()[:12]


def _first_few(topics: list[str]) -> str:
    return ", ".join(topics[:3]) + (" ..." if len(topics) > 3 else "")
