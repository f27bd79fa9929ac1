from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.metadata.image import ClusterImage, Features
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.api_versions import api_versions
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import ApiVersionsRequest, ApiVersionsResponse

LEVEL_MAX = 3


def rooms(level: int) -> Any:
    """A broker of a cluster at this feature level."""
    return SimpleNamespace(
        cluster_id="right",
        node_id=7,
        config=SimpleNamespace(logfleet_feature_level_max=LEVEL_MAX),
        metadata=SimpleNamespace(image=ClusterImage(features=Features(level, 5))),
        requests=SimpleNamespace(
            apis=[API_BY_NAME["Produce"], API_BY_NAME["ApiVersions"], API_BY_NAME["Envelope"]]
        ),
    )


def ask(version: int, level: int = 1, **fields: Any) -> tuple[ApiVersionsResponse, Peer]:
    peer = Peer("PLAINTEXT")
    context = RequestContext(peer, version, None, 1)
    return api_versions(rooms(level), ApiVersionsRequest(**fields), context), peer


def test_the_served_apis_are_reported_and_produce_from_0() -> None:
    answer, _ = ask(0)
    rows = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert rows == [(0, 0, 13), (18, 0, 5)]
    assert answer.error_code == 0


def test_of_features_only_our_own_is_reported_and_the_level_that_is_finalized() -> None:
    """Clients act upon Kafka's own, such as transaction.version."""
    answer, _ = ask(3, client_software_name="x", client_software_version="1")
    kind = ApiVersionsResponse
    supported = kind.SupportedFeatureKey(name="logfleet.version", min_version=1, max_version=3)
    finalized = kind.FinalizedFeatureKey(
        name="logfleet.version", max_version_level=1, min_version_level=1
    )
    assert answer.supported_features == [supported]
    assert answer.finalized_features == [finalized]
    assert answer.finalized_features_epoch == 5


@pytest.mark.parametrize("version, is_supported", [(3, False), (4, True)])
def test_with_transactions_their_version_is_reported_to_clients_that_can_read_it(
    version: int, *, is_supported: bool
) -> None:
    """KAFKA-17492: clients before version 4 refuse a feature that is supported from 0 on."""
    named = {"client_software_name": "x", "client_software_version": "1"}
    answer, _ = ask(version, TRANSACTIONS, **named)
    kind = ApiVersionsResponse
    supported = kind.SupportedFeatureKey(name="transaction.version", min_version=0, max_version=2)
    assert answer.supported_features[1:] == ([supported] if is_supported else [])
    assert answer.finalized_features[1:] == [
        kind.FinalizedFeatureKey(
            name="transaction.version", max_version_level=2, min_version_level=2
        )
    ]


def test_the_client_software_is_remembered() -> None:
    answer, peer = ask(3, client_software_name="librdkafka", client_software_version="2.16.1")
    assert answer.error_code == 0
    assert peer.software == ("librdkafka", "2.16.1")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a-"])
def test_a_bad_software_name_is_an_invalid_request(name: str) -> None:
    answer, peer = ask(3, client_software_name=name, client_software_version="1")
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.api_keys == []
    assert peer.software == ("", "")


@pytest.mark.parametrize(
    "cluster_id, node_id, expected",
    [
        (None, -1, ErrorCode.NONE),
        ("right", 7, ErrorCode.NONE),
        ("wrong", 7, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("right", 8, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("right", -1, ErrorCode.INVALID_REQUEST),
        (None, 7, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_misrouted_client_must_bootstrap_again_and_half_an_address_is_none(
    cluster_id: str | None, node_id: int, expected: ErrorCode
) -> None:
    answer, _ = ask(
        5,
        client_software_name="x",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    assert answer.error_code == expected
