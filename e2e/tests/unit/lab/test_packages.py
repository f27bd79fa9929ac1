import subprocess

import pytest

from e2e.lab.packages import FORBIDDEN, missing, services_stay_down

STATUS = """\
libc6-dev:amd64 ii\x20
containerd rc\x20
runc ii\x20
"""


def test_removed_packages_and_unknown_ones_are_missing():
    assert missing(("containerd", "runc", "libc6-dev", "gcc"), STATUS) == ["containerd", "gcc"]


def test_packages_may_start_no_service_while_they_are_installed(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with services_stay_down(policy):
        asked = subprocess.run([policy, "docker", "start"], check=False)
        assert asked.returncode == FORBIDDEN
    assert not policy.exists()


def test_a_failed_installation_leaves_no_policy_behind(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with pytest.raises(RuntimeError), services_stay_down(policy):
        raise RuntimeError
    assert not policy.exists()


def test_a_policy_of_the_machine_stays_as_it_is(tmp_path):
    policy = tmp_path / "policy-rc.d"
    policy.write_text("theirs")
    with services_stay_down(policy):
        assert policy.read_text() == "theirs"
    assert policy.read_text() == "theirs"
