"""What a Rebalance may say."""

from typing import Any

import pytest
from logfleet.balance import limits
from logfleet.resources.document import InvalidResourceError
from logfleet.resources.rebalance import parse_rebalance


def document(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "logfleet.dev/v1beta1",
        "kind": "Rebalance",
        "metadata": {"name": "even-out"},
        "spec": {"clusterRef": {"name": "fleet"}} | spec,
    }


def test_it_waits_for_approval_unless_it_says_otherwise() -> None:
    spec = parse_rebalance(document()).spec
    assert not spec.is_approved
    assert (spec.bytes_per_s, spec.moves_per_broker) == (50 << 20, limits.PER_BROKER)
    assert parse_rebalance(document(approved=True)).spec.is_approved
    assert parse_rebalance(document(approval="Auto")).spec.is_approved


@pytest.mark.parametrize(
    "spec, said",
    [
        ({"clusterRef": {"name": ""}}, "spec.clusterRef.name: is empty"),
        ({"throttle": "0"}, "spec.throttle: '0' is not a number of bytes per second"),
        ({"movesPerBroker": 0}, "spec.movesPerBroker: is 0, write a number from 1 to 100"),
        ({"topics": {"exclude": ["t"] * 1001}}, "spec.topics.exclude: names 1001 topics"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished: is negative"),
        ({"dryRun": True}, "spec.dryRun: no such field"),
    ],
)
def test_a_mistake_names_its_field(spec, said) -> None:
    with pytest.raises(InvalidResourceError, match=said):
        parse_rebalance(document(**spec))
