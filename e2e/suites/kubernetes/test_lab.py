"""The lab is a Kubernetes of three zones: what the other suites rely on."""

import urllib.request
from pathlib import Path

import pytest
import yaml

from e2e.harness.images import image_name
from e2e.harness.kube.kubernetes import RESTRICTED, condition, wait_for
from e2e.lab.commands import LabError

NAMESPACE = "zonal"
PODS = ("web-0", "web-1", "web-2")
NODE_PORT = 30080
SERVED_WITHIN_S = 60
"""DNS and the nodes' rules hear of pods that are Ready a moment later."""
MANIFEST = Path(__file__).parent / "zonal.yaml"


@pytest.fixture(scope="module")
def web(rig):
    """Three pods of a StatefulSet, Ready."""
    rig.wait_for_images("broker")  # any image with Python that is in every zone
    kubernetes = rig.kubernetes
    kubernetes.create_namespace(NAMESPACE, RESTRICTED)
    text = MANIFEST.read_text().replace("IMAGE", image_name("broker"))
    kubernetes.apply(*yaml.safe_load_all(text), namespace=NAMESPACE)
    for pod in PODS:
        kubernetes.wait_pod(pod, NAMESPACE, within_s=180)
    yield
    kubernetes.delete("namespace", NAMESPACE, wait=False)


def test_each_zone_is_one_ready_node(rig, kubernetes):
    assert sorted(kubernetes.zone_of_node().values()) == rig.zones == ["a", "b", "c"]
    for node in kubernetes.items("nodes"):
        ready = condition(node, "Ready")
        assert ready
        assert ready["status"] == "True"


def test_pods_are_spread_over_the_zones_and_their_volumes_stay_there(web, kubernetes):
    pods = {pod["metadata"]["name"]: pod for pod in kubernetes.pods(NAMESPACE)}
    zones = {name: kubernetes.zone_of_pod(pod) for name, pod in pods.items()}
    assert sorted(zones.values()) == ["a", "b", "c"]
    volumes = [
        volume
        for volume in kubernetes.items("pv")
        if volume["spec"]["claimRef"]["namespace"] == NAMESPACE
    ]
    assert len(volumes) == 3
    for volume in volumes:
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (expression,) = term["matchExpressions"]
        pod = volume["spec"]["claimRef"]["name"].removeprefix("data-")
        assert expression["values"] == [pods[pod]["spec"]["nodeName"]]


def test_pods_find_each_other_by_name(web, kubernetes):
    code = (
        "import urllib.request as r\n"
        f"for n in {PODS!r}:\n"
        f"    u = f'http://{{n}}.web.{NAMESPACE}.svc.cluster.local:8000/name'\n"
        "    print(r.urlopen(u).read().decode(), end='')"
    )

    def said() -> str:
        return str(kubernetes.execute("web-0", NAMESPACE, "python", "-c", code))

    assert wait_for("the names", said, SERVED_WITHIN_S).split() == list(PODS)


@pytest.mark.parametrize("zone", ["a", "b", "c"])
def test_a_node_port_is_reached_from_outside_through_every_node(web, rig, zone):
    def name() -> str | None:
        url = f"http://{rig.node_ip(zone)}:{NODE_PORT}/name"
        try:
            with urllib.request.urlopen(url, timeout=10) as got:
                return str(got.read().decode().strip())
        except OSError:
            return None

    assert wait_for("an answer", name, SERVED_WITHIN_S) in PODS


@pytest.mark.full
def test_a_pod_that_is_deleted_comes_back_with_its_data(web, kubernetes):
    before = kubernetes.get("pod", "web-1", NAMESPACE)
    boots = len(kubernetes.execute("web-1", NAMESPACE, "cat", "/data/boots").split())
    kubernetes.delete("pod", "web-1", NAMESPACE)

    def is_new():
        return kubernetes.get("pod", "web-1", NAMESPACE)["metadata"]["uid"] != uid

    uid = before["metadata"]["uid"]
    wait_for("a new web-1", is_new, within_s=120)
    after = kubernetes.wait_pod("web-1", NAMESPACE, within_s=120)
    assert after["spec"]["nodeName"] == before["spec"]["nodeName"]
    # more than once if its probe or the node had to start it again
    assert len(kubernetes.execute("web-1", NAMESPACE, "cat", "/data/boots").split()) > boots


def test_a_privileged_pod_is_refused_where_security_is_restricted(web, kubernetes):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [{"name": "x", "image": image_name("broker")}]},
    }
    assert "violates PodSecurity" in kubernetes.refusal(pod, NAMESPACE)


@pytest.mark.full
def test_a_zone_that_loses_its_power_comes_back_with_its_data(web, rig, kubernetes):
    pod = next(p for p in kubernetes.pods(NAMESPACE) if kubernetes.zone_of_pod(p) == "c")
    name = pod["metadata"]["name"]
    boots = len(kubernetes.execute(name, NAMESPACE, "cat", "/data/boots").split())
    rig.power_off("c")

    def is_noticed():
        ready = condition(kubernetes.get("node", "node-c"), "Ready")
        return ready is not None and ready["status"] != "True"

    wait_for("node-c to be NotReady", is_noticed, within_s=120)
    rig.power_on("c")
    kubernetes.wait_condition("node", "node-c", within_s=120)

    def booted_again():
        return len(kubernetes.execute(name, NAMESPACE, "cat", "/data/boots").split()) > boots

    wait_for(f"{name} with its data", booted_again, within_s=180)


def test_errors_carry_the_words_of_kubectl(kubernetes):
    with pytest.raises(LabError, match="not found"):
        kubernetes.get("pod", "nobody", "default")
