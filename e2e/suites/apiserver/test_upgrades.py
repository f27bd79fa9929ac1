"""spec.version and spec.featureLevel through the operator's own process, an API server and a broker."""

import shutil

import pytest

from e2e.harness.command_line import said
from e2e.harness.kube.fleet import CLUSTERS
from e2e.harness.kube.kubernetes import Kubernetes, Object, wait_for
from e2e.harness.kube.stage import SOON_S, bring_up, small

LEVEL = "logfleet.feature.level.max"


def status(kubernetes: Kubernetes, namespace: str) -> Object:
    found: Object = kubernetes.get(CLUSTERS, "fleet", namespace)["status"]
    return found


@pytest.mark.full
def test_a_version_is_rolled_to_and_its_level_raised_once_the_broker_can_do_it(stage, namespace):
    broker, kubernetes = stage.broker, stage.kubernetes
    broker.terminate()
    shutil.rmtree(broker.data)
    broker.config[LEVEL] = "1"
    broker.start()
    bring_up(stage, namespace, small())

    def waits_for(words: str) -> None:
        wait_for(words, lambda: words in status(kubernetes, namespace)["why"], SOON_S)

    kubernetes.apply(small(version="0.9.9", featureLevel=2), namespace=namespace)
    waits_for("feature level 2 waits: the brokers' version can do 1 at most")
    found = status(kubernetes, namespace)
    assert (found["featureLevel"], found["featureLevelPossible"]) == (1, 1)
    ready = next(each for each in found["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Progressing")
    pods = [pod for pod in kubernetes.pods(namespace) if "main" in pod["metadata"]["name"]]
    images = {pod["spec"]["containers"][0]["image"] for pod in pods}
    assert {image.rpartition(":")[2] for image in images} == {"0.9.9"}

    broker.config[LEVEL] = "2"
    broker.restart()
    wait_for(
        "the level to be raised",
        lambda: status(kubernetes, namespace).get("featureLevel") == 2,
        SOON_S,
    )
    assert "logfleet.version is at 2." in said(broker, "features", "describe", "-o", "table")
    kubernetes.kubectl(
        "wait", "--for=condition=Ready", f"{CLUSTERS}/fleet", "--timeout=60s", namespace=namespace
    )
