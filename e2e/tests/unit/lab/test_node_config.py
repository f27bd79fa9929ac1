import json
import tomllib
from pathlib import Path

import pytest

from e2e.lab.node_config import containerd_major, containerd_toml, node_files
from e2e.lab.settings import PAUSE_IMAGE, Settings, Zone

SETTINGS = Settings(root=Path("/cache"), zones=(Zone("a", 0), Zone("b", 1)))


def test_containerds_version_is_read_with_debians_suffix_and_without():
    assert containerd_major("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20") == 1
    assert containerd_major("containerd github.com/containerd/containerd/v2 v2.2.9 abc") == 2


@pytest.mark.parametrize(
    "major, version, plugin, where",
    [
        (1, 2, "io.containerd.grpc.v1.cri", {"bin_dir": "/usr/lib/cni"}),
        (2, 3, "io.containerd.cri.v1.runtime", {"bin_dirs": ["/usr/lib/cni"]}),
    ],
)
def test_both_containerds_find_cni_and_the_sandbox_image(major, version, plugin, where):
    text = containerd_toml(major)
    config = tomllib.loads(text)
    assert config["version"] == version
    assert where.items() <= config["plugins"][plugin]["cni"].items()
    assert f'"{PAUSE_IMAGE}"' in text
    assert config["plugins"][plugin]["restrict_oom_score_adj"] is True


def test_a_nodes_files_are_its_own():
    files = node_files(SETTINGS, Zone("b", 1), containerd=1, memory_reserved=5 << 30)
    kubelet = json.loads(files["kubelet.yaml"])
    assert kubelet["cgroupRoot"] == "/klab/b"
    assert kubelet["systemReserved"]["memory"] == str(5 << 30)
    assert kubelet["tlsCertFile"] == "/cache/run/pki/node-b.crt"
    network = json.loads(files["netd/10-lab.conflist"])
    assert network["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]
    assert json.loads(files["proxy.yaml"])["hostnameOverride"] == "node-b"


def test_imported_images_are_never_collected():
    files = node_files(SETTINGS, Zone("a", 0), containerd=1, memory_reserved=1)
    assert json.loads(files["kubelet.yaml"])["imageGCHighThresholdPercent"] == 100
