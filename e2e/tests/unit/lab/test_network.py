from e2e.lab.network import raising
from e2e.lab.settings import Zone

ZONES = tuple(Zone(name, index) for index, name in enumerate("abc"))


def test_every_node_reaches_every_other_nodes_pods():
    commands = raising(ZONES)
    for zone in ZONES:
        for other in ZONES:
            route = f"-n {zone.netns} route add {other.pod_cidr} via {other.node_ip}"
            assert (route in commands) == (zone != other)


def test_the_host_reaches_pods_so_that_webhooks_can_be_called():
    for zone in ZONES:
        assert f"route add {zone.pod_cidr} via {zone.node_ip}" in raising(ZONES)


def test_link_names_fit_the_kernel():
    assert all(len(zone.switch_port) <= 15 for zone in ZONES)
