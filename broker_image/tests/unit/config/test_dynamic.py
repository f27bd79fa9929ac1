import pytest
from logfleet.config.dynamic import BrokerPart, pieces_to_notify
from logfleet.config.topic import BrokerLayers

STATIC = {"max.connections": "5", "message.max.bytes": "5"}


@pytest.mark.parametrize(
    "cluster, dynamic, pieces",
    [
        ({}, {}, set()),
        ({"message.max.bytes": "6"}, {}, {BrokerPart.LOGS}),
        ({}, {"log.retention.ms": "6"}, {BrokerPart.LOGS}),
        ({"max.connections": "5"}, {"max.connections": "5"}, set()),
        ({"max.connections": "6"}, {"max.connections": "5"}, set()),
        ({"max.connections": "6"}, {}, {BrokerPart.CONNECTIONS}),
        ({}, {"listener.name.a.max.connections": "6"}, {BrokerPart.CONNECTIONS}),
        ({}, {"num.io.threads": "6", "ssl.cipher.suites": "x"}, set()),
        (
            {"producer.id.expiration.ms": "6"},
            {"compression.type": "gzip"},
            {BrokerPart.LOGS, BrokerPart.PRODUCERS},
        ),
        ({"of.a.later.version": "1"}, {}, set()),
    ],
)
def test_a_piece_is_told_if_another_value_holds_for_it(cluster, dynamic, pieces):
    before = BrokerLayers(STATIC)
    after = BrokerLayers(STATIC, cluster, dynamic)
    assert pieces_to_notify(before, after) == pieces
    assert pieces_to_notify(after, before) == pieces
    assert pieces_to_notify(after, after) == set()
