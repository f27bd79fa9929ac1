import pytest
from logfleet.config.group import validate_group_configs
from logfleet.config.keys import ConfigError
from logfleet.config.topic import BrokerLayers


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"},
        {"share.delivery.count.limit": "10", "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S"},
        {"streams.rack.aware.assignment.tags": "a,b", "streams.assignor.name": "sticky"},
        {"errors.deadletterqueue.topic.name": "dlq.x"},
    ],
)
def test_valid_settings_pass(overrides):
    validate_group_configs(overrides, BrokerLayers())


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        ({"session.timeout.ms": "1"}, "Unknown group config name: session.timeout.ms"),
        ({"consumer.session.timeout.ms": "x"}, "Not a number of type INT"),
        (
            {"consumer.session.timeout.ms": "44999"},
            "must be in the range 45000 to 60000 inclusive.",
        ),
        ({"share.record.lock.duration.ms": "60001"}, "in the range 15000 to 60000 inclusive."),
        ({"streams.num.standby.replicas": "3"}, "must be less than or equal to 2"),
        ({"streams.rack.aware.assignment.tags": "a,a"}, "must not contain duplicate tag keys."),
        ({"streams.assignor.name": "x"}, "'x' is not a registered task assignor.*: .sticky.\\.$"),
        ({"share.auto.offset.reset": "by_duration:-PT1H"}, "Invalid value by_duration:-PT1H"),
        ({"share.auto.offset.reset": "by_duration:P"}, "Invalid value by_duration:P "),
        ({"errors.deadletterqueue.topic.name": "__x"}, "must not start with '__'"),
    ],
)
def test_what_kafka_refuses_is_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        validate_group_configs(overrides, BrokerLayers())


def test_the_bounds_are_those_the_brokers_have_now():
    layers = BrokerLayers({"group.consumer.min.session.timeout.ms": "1000"})
    with pytest.raises(ConfigError, match=r"must be greater than consumer\.heartbeat"):
        validate_group_configs({"consumer.session.timeout.ms": "5000"}, layers)
    validate_group_configs({"consumer.session.timeout.ms": "5001"}, layers)
