"""The lab's network: a switch that joins the nodes and the host, and the faults it can be given.

The switch is a bridge in a network namespace of its own, so that the host's firewall rules never
see the lab's traffic. Each node gets one cable to it; routes to the other nodes' pod ranges are static.
"""

import json
from pathlib import Path

from e2e.lab.commands import LabError, run, succeeds
from e2e.lab.settings import HOST_IP, Settings, Zone

SWITCH = "klab-sw"
HOST_LINK = "klab-host"
HOST_PORT = "host"
NAMESPACES = Path("/run/netns")


def raising(zones: tuple[Zone, ...]) -> list[str]:
    """The `ip` commands that make the network, in order."""
    commands = [
        f"netns add {SWITCH}",
        f"-n {SWITCH} link add br0 type bridge",
        f"-n {SWITCH} link set br0 up",
        f"-n {SWITCH} link set lo up",
        f"link add {HOST_LINK} type veth peer name {HOST_PORT} netns {SWITCH}",
        f"-n {SWITCH} link set dev {HOST_PORT} master br0 up",
        f"addr add {HOST_IP}/24 dev {HOST_LINK}",
        f"link set {HOST_LINK} up",
    ]
    for zone in zones:
        commands += [
            f"netns add {zone.netns}",
            f"-n {zone.netns} link set lo up",
            f"-n {zone.netns} link add eth0 type veth peer name {zone.switch_port} netns {SWITCH}",
            f"-n {SWITCH} link set dev {zone.switch_port} master br0 up",
            f"-n {zone.netns} addr add {zone.node_ip}/24 dev eth0",
            f"-n {zone.netns} link set eth0 up",
            f"-n {zone.netns} route add default via {HOST_IP}",
            f"route add {zone.pod_cidr} via {zone.node_ip}",
        ]
        commands += [
            f"-n {zone.netns} route add {other.pod_cidr} via {other.node_ip}"
            for other in zones
            if other != zone
        ]
    return commands


def net_up(settings: Settings) -> None:
    """The network is there afterwards; half of one is made anew."""
    wanted = {SWITCH, *(zone.netns for zone in settings.zones)}
    if wanted <= set(namespaces()) and succeeds("ip", "link", "show", HOST_LINK):
        return
    net_down()
    for command in raising(settings.zones):
        run("ip", *command.split())


def net_down() -> None:
    """No namespace and no link of any lab is left; the routes go with the link."""
    for name in namespaces():
        run("ip", "netns", "del", name)
    if NAMESPACES.is_dir() and not any(NAMESPACES.iterdir()) and succeeds("umount", NAMESPACES):
        succeeds("rmdir", NAMESPACES)  # `ip netns add` made it and mounted it over itself
    if succeeds("ip", "link", "show", HOST_LINK):
        run("ip", "link", "del", HOST_LINK)


def namespaces() -> list[str]:
    """Network namespaces of the lab, this one's or an earlier one's."""
    return sorted(path.name for path in NAMESPACES.glob("klab-*"))


def links() -> list[str]:
    return [HOST_LINK] if succeeds("ip", "link", "show", HOST_LINK) else []


def pod_links(zone: Zone) -> list[str]:
    """The node's ends of the cables to its pods, as the CNI plugin `ptp` names them."""
    shown = json.loads(run("ip", "-n", zone.netns, "-json", "link", "show", "type", "veth"))
    names = (each.get("ifname", "") for each in shown)  # empty objects stand for other links
    return [name for name in names if name.startswith("veth")]


def cut_pods_off(zone: Zone) -> None:
    """Remove those cables, and with them the routes to the pods.

    For a node that is down: the kernel takes its pods' namespaces apart some time later, and a route that is left would pass for that of a
    new pod with the address of a former one, which cannot be reached once it goes.
    """
    for link in pod_links(zone):
        succeeds("ip", "-n", zone.netns, "link", "del", link)  # the kernel may be faster


def set_cable(zone: Zone, *, plugged: bool) -> None:
    """Cut a node off from everything, or join it again."""
    state = "up" if plugged else "down"
    run("ip", "-n", SWITCH, "link", "set", "dev", zone.switch_port, state)


def partition(settings: Settings, one: str, other: str) -> None:
    """Two zones no longer hear each other; `host` names the control plane. Undone by `heal`."""
    one, other = _port(settings, one), _port(settings, other)
    for source, target in ((one, other), (other, one)):
        ports = ("--physdev-in", source, "--physdev-out", target)
        _on_switch("iptables", "-A", "FORWARD", "-m", "physdev", *ports, "-j", "DROP")


def heal() -> None:
    """Undo every partition."""
    _on_switch("iptables", "-F", "FORWARD")


def _on_switch(*command: str) -> None:
    run("ip", "netns", "exec", SWITCH, *command)


def _port(settings: Settings, name: str) -> str:
    if name == HOST_PORT:
        return name
    try:
        return settings.zone(name).switch_port
    except KeyError as error:
        raise LabError(f"there is no zone {name!r}") from error
