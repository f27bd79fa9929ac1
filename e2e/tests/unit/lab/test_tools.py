import pytest

from e2e.lab.images import ETCD_IMAGE
from e2e.lab.tools import ALL, HELM, KUBE, linker_flags, module_version

GO_MOD = """\
module lab/tools/kube

require (
	k8s.io/kubernetes v1.35.4
	go.etcd.io/etcd/server/v3 v3.6.5 // indirect
)
"""


def test_required_versions_are_found_in_blocks_and_in_lines():
    assert module_version(GO_MOD, "k8s.io/kubernetes") == "v1.35.4"
    assert module_version("require k8s.io/kubernetes v1.2.3\n", "k8s.io/kubernetes") == "v1.2.3"
    with pytest.raises(AssertionError, match="requires no"):
        module_version(GO_MOD, "k8s.io/kube")


def test_kubernetes_is_told_its_version():
    flags = linker_flags("kube", GO_MOD)
    assert "-X k8s.io/component-base/version.gitVersion=v1.35.4" in flags
    assert "-X k8s.io/client-go/pkg/version.gitMinor=35" in flags
    assert "helm" not in flags


def test_helm_is_told_its_version():
    assert "internal/version.version=v3." in linker_flags("helm", HELM.go_mod)


@pytest.mark.parametrize("module", ALL, ids=lambda module: module.name)
def test_each_module_pins_its_sums(module):
    assert (module.folder / "go.sum").stat().st_size > 0
    assert "tool" in module.go_mod


def test_etcd_under_the_public_name_is_of_that_very_version():
    version = module_version(KUBE.go_mod, "go.etcd.io/etcd/server/v3")
    assert ETCD_IMAGE.rpartition(":")[2] == version
