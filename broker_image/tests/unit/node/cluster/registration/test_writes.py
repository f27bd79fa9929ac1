import pytest
from logfleet.metadata.image import Broker, ClusterImage, Fence
from logfleet.metadata.kinds.brokers import ACTIVE, FENCED
from logfleet.node.cluster.registration.writes import ended_in
from logfleet.types import BrokerEpoch

from broker_image.tests.unit.node.cluster.registration.registration_rig import VALUE


@pytest.mark.parametrize(
    "image, why",
    [
        (ClusterImage(revision=4), ""),
        (ClusterImage(revision=5), "gone"),
        (ClusterImage(5, brokers={1: Broker(1, BrokerEpoch(5), VALUE)}), ""),
        (ClusterImage(9, brokers={1: Broker(1, BrokerEpoch(8), VALUE)}), "another process"),
        (
            ClusterImage(
                9,
                brokers={1: Broker(1, BrokerEpoch(5), VALUE)},
                fences={1: Fence(BrokerEpoch(4), FENCED, 6)},
            ),
            "",
        ),
        (
            ClusterImage(
                9,
                brokers={1: Broker(1, BrokerEpoch(5), VALUE)},
                fences={1: Fence(BrokerEpoch(5), FENCED, 6)},
            ),
            "the controller has fenced this broker",
        ),
        (
            ClusterImage(
                9,
                brokers={1: Broker(1, BrokerEpoch(5), VALUE, ACTIVE)},
                fences={1: Fence(BrokerEpoch(5), ACTIVE, 6)},
            ),
            "",
        ),
    ],
)
def test_what_ends_a_registration(image: ClusterImage, why: str) -> None:
    ended = ended_in(image, 1, BrokerEpoch(5))
    assert why in ended
    assert bool(ended) == bool(why)
