"""The gate before a member of etcd, run by a shell as in its container."""

import subprocess
from pathlib import Path

import pytest
import yaml
from logfleet.resources.cluster import ManagedMetadata, parse_cluster
from logfleet_operator.clusters import etcd

EXAMPLE = Path(__file__).resolve().parents[3] / "crds/examples/cluster.yaml"


def gate() -> list[str]:
    document = yaml.safe_load(EXAMPLE.read_text())
    document["metadata"] |= {"namespace": "air", "uid": "1"}
    parsed = parse_cluster(document)
    managed = parsed.spec.metadata.managed
    assert isinstance(managed, ManagedMetadata)
    placed = etcd.Placement((), apart=False)
    members = etcd.stateful_set(parsed, managed, placed, image="etcd:1", gate_image="broker:1")
    (container,) = members["spec"]["template"]["spec"]["initContainers"]
    command: list[str] = container["command"]
    return command


@pytest.mark.parametrize(
    "data, state, admitted, code",
    [
        ("data/member/wal", etcd.ESTABLISHED, "", 0),
        ("data/member/wal", etcd.BOOTSTRAPPING, "", 0),
        ("", etcd.BOOTSTRAPPING, "", 0),
        ("", etcd.ESTABLISHED, "", etcd.EMPTY_VOLUME_EXIT),
        ("data/member", etcd.ESTABLISHED, "", etcd.EMPTY_VOLUME_EXIT),
        ("", etcd.ESTABLISHED, "uid-1", 0),
        ("", etcd.ESTABLISHED, "uid-2", etcd.EMPTY_VOLUME_EXIT),
    ],
)
def test_the_gate_is_shut_where_a_member_lost_its_data(
    tmp_path: Path, data: str, state: str, admitted: str, code: int
) -> None:
    (tmp_path / data).mkdir(parents=True, exist_ok=True)
    shell, options, script = gate()
    script = script.replace(etcd.DATA_DIRECTORY, str(tmp_path))
    environment = {"ETCD_STATE": state, "ETCD_ADMITTED": admitted, "POD_UID": "uid-1"}
    done = subprocess.run([shell, options, script], env=environment, check=False)
    assert done.returncode == code
