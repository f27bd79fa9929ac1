from types import SimpleNamespace
from typing import Any

import pytest
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.metadata.image import ClusterImage, Features
from logfleet.net.connection import CloseConnection
from logfleet.net.peer import Peer
from logfleet.node.dispatch import RequestContext
from logfleet.node.handlers.transaction_gate import gated, served
from logfleet.wire.apis import API_BY_NAME
from logfleet.wire.messages import EndTxnRequest, ListGroupsRequest

CONTEXT = RequestContext(Peer("PLAINTEXT"), 0, None, 1)
APIS = [API_BY_NAME[name] for name in ("Produce", "EndTxn")]


def image(level: int) -> ClusterImage:
    return ClusterImage(features=Features(level, 5))


def rooms(level: int) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(image=image(level)))


def test_below_their_level_apis_of_transactions_are_not_served() -> None:
    assert [api.name for api in served(APIS, image(TRANSACTIONS - 1))] == ["Produce"]
    assert served(APIS, image(TRANSACTIONS)) == APIS


def test_below_the_level_their_requests_close_the_connection_and_no_others() -> None:
    handlers = gated(
        {EndTxnRequest: lambda *_: EndTxnRequest(), ListGroupsRequest: lambda *_: None}
    )
    end, list_groups = handlers[EndTxnRequest], handlers[ListGroupsRequest]
    assert list_groups(rooms(TRANSACTIONS - 1), ListGroupsRequest(), CONTEXT) is None
    with pytest.raises(CloseConnection, match="API 26 is not served"):
        end(rooms(TRANSACTIONS - 1), EndTxnRequest(), CONTEXT)
    assert end(rooms(TRANSACTIONS), EndTxnRequest(), CONTEXT) == EndTxnRequest()
