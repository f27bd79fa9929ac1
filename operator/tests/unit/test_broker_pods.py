"""What a broker's container runs, and when the kubelet ends it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from logfleet.resources.cluster import ClusterResource, parse_cluster
from logfleet_operator.clusters import manifests
from logfleet_operator.clusters.broker_id_ranges import BrokerIdRange

EXAMPLE = Path(__file__).resolve().parents[3] / "crds/examples/cluster.yaml"
PROGRAM = '#!/bin/sh\necho "${0##*/} $*"\n'


def parsed() -> ClusterResource:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["metadata"] |= {"namespace": "air", "uid": "1"}
    return parse_cluster(document)


def container() -> dict[str, Any]:
    cluster = parsed()
    pool = cluster.spec.pools[0]
    given = BrokerIdRange(pool.name, "a", 0, 1)
    brokers = manifests.broker_set(cluster, pool, given, image="broker:1", brokers=3)
    (found,) = brokers["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("has_tini", [True, False])
def test_a_broker_is_no_process_1_where_its_image_has_an_init(
    tmp_path: Path, *, has_tini: bool
) -> None:
    """Else the kernel would spare it from its own timer; images of earlier versions have none."""
    for name in ["logfleet", *(["tini"] if has_tini else [])]:
        (tmp_path / name).write_text(PROGRAM)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "external.1002").write_text("30000")
    shell, options, script = container()["command"]
    script = script.replace(manifests.PORTS_DIRECTORY, str(tmp_path))
    script = script.replace(manifests.CONFIG_DIRECTORY, str(tmp_path))
    environment = {
        "PATH": f"{tmp_path}:/no/other",
        "POD_NAME": "fleet-main-a-2",
        "BROKER_BASE": "1000",
        "BROKER_RACK": "a",
        "HOST_IP": "10.0.0.1",
    }
    script = script.replace("$(cat ", "$(/bin/cat ")
    done = subprocess.run(
        [shell, options, script], env=environment, capture_output=True, text=True, check=True
    )
    begins = "tini -g -- logfleet broker " if has_tini else "logfleet broker "
    assert done.stdout.startswith(begins)
    assert "--override node.id=1002 " in done.stdout
    assert done.stdout.endswith(" --override broker.rack=a\n")


def test_a_broker_that_does_not_answer_is_killed_within_fifteen_seconds() -> None:
    """And none that is held up for as long as the keeper of its leases allows, or for a while."""
    probe = container()["livenessProbe"]
    assert probe["httpGet"]["path"] == "/healthz"
    assert probe["terminationGracePeriodSeconds"] == 1
    silent_s = probe["failureThreshold"] * max(probe["periodSeconds"], probe["timeoutSeconds"])
    assert 8 <= silent_s <= 13
    assert probe["timeoutSeconds"] > 2
