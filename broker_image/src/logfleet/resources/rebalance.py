"""The Rebalance resource: spread the replicas of a Cluster's topics over its brokers, once.

A user can see and approve the proposal first. Unlike a Cluster or a Topic it is not a lasting state
but one act: it ends as Done or Stopped. `crds/rebalances.yaml` has the same limits.
"""

from typing import Final, Literal

import msgspec

from logfleet.resources.document import InvalidResourceError, Metadata, Problem, decode
from logfleet.resources.quantity import parse_quantity
from logfleet.resources.topic import ClusterRef

KIND: Final = "Rebalance"
PER_BROKER: Final = 5
"""As in `balance.waves`."""
PER_BROKER_MAX: Final = 100
EXCLUDED_MAX: Final = 1_000

Approval = Literal["Auto", "Manual"]


class Excluded(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """exclude: names of topics whose replicas stay where they are."""

    exclude: tuple[str, ...] = ()


class RebalanceSpec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The desired state in a user's resource.

    approval: Manual waits, with the proposal in the status, until approved is true. stop: cancel
    what is under way, and end. throttle: bytes per second and broker that moves may take, a
    quantity. moves_per_broker: partitions that move at a time per broker.
    ttl_seconds_after_finished: seconds from its end until the resource is deleted, None for never
    (as a Job's).
    """

    cluster_ref: ClusterRef
    approval: Approval = "Manual"
    approved: bool = False
    stop: bool = False
    topics: Excluded = Excluded()
    throttle: str = "50Mi"
    moves_per_broker: int = PER_BROKER
    ttl_seconds_after_finished: int | None = None

    @property
    def is_approved(self) -> bool:
        return self.approval == "Auto" or self.approved

    @property
    def bytes_per_s(self) -> int:
        return int(parse_quantity(self.throttle) or 0)


class RebalanceResource(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A whole Rebalance document."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: RebalanceSpec
    status: dict[str, object] | None = None


def parse_rebalance(document: object) -> RebalanceResource:
    """Return the Rebalance that `document` (a mapping as YAML gives it) describes.

    Raises InvalidResourceError naming every field that is wrong and what to write.
    """
    rebalance = decode(document, KIND, RebalanceResource)
    spec = rebalance.spec
    problems = []
    if not spec.cluster_ref.name:
        problems.append(Problem("spec.clusterRef.name", "is empty, write a Cluster's name"))
    if spec.bytes_per_s < 1:
        message = f"{spec.throttle!r} is not a number of bytes per second: write one such as 50Mi"
        problems.append(Problem("spec.throttle", message))
    if not 1 <= spec.moves_per_broker <= PER_BROKER_MAX:
        message = f"is {spec.moves_per_broker}, write a number from 1 to {PER_BROKER_MAX}"
        problems.append(Problem("spec.movesPerBroker", message))
    if len(spec.topics.exclude) > EXCLUDED_MAX:
        message = f"names {len(spec.topics.exclude)} topics, at most {EXCLUDED_MAX} fit"
        problems.append(Problem("spec.topics.exclude", message))
    if (spec.ttl_seconds_after_finished or 0) < 0:
        problems.append(Problem("spec.ttlSecondsAfterFinished", "is negative, write 0 or more"))
    if problems:
        raise InvalidResourceError(problems)
    return rebalance
