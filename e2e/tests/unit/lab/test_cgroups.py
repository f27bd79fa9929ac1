import subprocess

import pytest

from e2e.lab.cgroups import Hierarchies
from e2e.lab.commands import LabError


@pytest.fixture
def version_1(tmp_path):
    """A machine with one tree per controller and a unified one beside them."""
    for controller in ("memory", "freezer", "cpuset", "unified"):
        (tmp_path / controller).mkdir()
    (tmp_path / "cpu").symlink_to(tmp_path / "memory")
    (tmp_path / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset" / "cpuset.mems").write_text("0\n")
    return Hierarchies(tmp_path)


@pytest.fixture
def version_2(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    return Hierarchies(tmp_path)


def test_processes_join_every_real_tree_once(version_1):
    trees = [path.parent.parent.name for path in version_1.procs_files("klab")]
    assert trees == ["cpuset", "freezer", "memory"]


def test_what_runc_mirrors_into_a_hybrid_hosts_unified_tree_is_found(version_1):
    (version_1.mount / "unified" / "klab" / "a").mkdir(parents=True)
    assert version_1.mount / "unified/klab/a" in version_1.folders()


def test_groups_are_made_with_their_parents(version_1):
    version_1.make("klab/a/sys")
    for tree in version_1.trees:
        assert (tree / "klab/a/sys").is_dir()


def test_removal_takes_the_deepest_first(version_1):
    version_1.make("klab/a/sys")
    version_1.remove()
    assert version_1.folders() == []


def test_a_group_that_cannot_be_removed_is_named(version_1, monkeypatch):
    monkeypatch.setattr("e2e.lab.cgroups.REMOVE_WITHIN_S", 0.0)
    version_1.make("klab/a")
    (version_1.mount / "memory/klab/a/busy").touch()
    with pytest.raises(LabError, match="control groups of klab to go"):
        version_1.remove()


def test_version_2_passes_controllers_down_but_not_to_leaves(version_2):
    (version_2.mount / "klab").mkdir()
    (version_2.mount / "klab/cgroup.controllers").write_text("cpu memory\n")
    version_2.make("klab/a")
    assert (version_2.mount / "klab/cgroup.subtree_control").read_text() == "+cpu +memory"
    assert not (version_2.mount / "klab/a/cgroup.subtree_control").exists()


def test_version_2_is_one_tree(version_2):
    assert version_2.procs_files("klab/a") == [version_2.mount / "klab/a/cgroup.procs"]


def test_freezing_is_spelled_as_the_version_wants(version_1):
    version_1.make("klab/a")
    version_1.freeze("klab/a", frozen=True)
    assert (version_1.mount / "freezer/klab/a/freezer.state").read_text() == "FROZEN"
    version_1.thaw("klab/a")
    assert (version_1.mount / "freezer/klab/a/freezer.state").read_text() == "THAWED"


def test_kill_thaws_what_stands_directly_below_first(version_1):
    version_1.make("klab/a")
    version_1.freeze("klab/a", frozen=True)
    version_1.kill("klab")
    assert (version_1.mount / "freezer/klab/a/freezer.state").read_text() == "THAWED"


def test_kill_ends_every_process_of_the_group(version_2):
    group = version_2.mount / "klab" / "a"
    group.mkdir(parents=True)
    child = subprocess.Popen(["sleep", "600"])
    procs = group / "cgroup.procs"
    procs.write_text(f"{child.pid}\n")
    # A file does not empty itself as the kernel's does: the kill is seen, and the survivor named.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("e2e.lab.cgroups.KILL_WITHIN_S", 0.0)
        with pytest.raises(LabError, match="the processes of klab to end"):
            version_2.kill("klab")
    assert child.wait(10) == -9
