import json
from pathlib import Path

import pytest

from e2e.harness.kube.kubernetes import Kubernetes, condition, wait_for
from e2e.lab.commands import LabError


@pytest.fixture
def cluster(tmp_path):
    """A kubectl that answers with the files of a folder and notes what it was asked."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/asked; cat > {tmp_path}/stdin\n'
        f"cat {tmp_path}/answer 2>/dev/null || {{ echo 'Error: it is against the rules' >&2; exit 1; }}\n"
    )
    kubectl.chmod(0o755)
    return Kubernetes(Path("/kubeconfig"), tmp_path)


def test_the_first_answer_that_is_true_is_given():
    answers = iter(["", None, "there"])
    assert wait_for("it", lambda: next(answers), within_s=10) == "there"


def test_an_error_counts_as_not_yet():
    calls = []

    def probe() -> bool:
        calls.append(1)
        if len(calls) < 3:
            raise LabError("not found")
        return True

    assert wait_for("it", probe, within_s=10)


def test_what_was_seen_last_is_told():
    def probe() -> None:
        raise LabError("connection refused")

    with pytest.raises(AssertionError, match=r"waited 0 s for the pod; last seen: connection"):
        wait_for("the pod", probe, within_s=0)


def test_conditions_are_found_by_type_and_may_be_absent():
    ready = {"type": "Ready", "status": "False"}
    assert condition({"status": {"conditions": [{"type": "Other"}, ready]}}, "Ready") == ready
    assert condition({"status": {"conditions": None}}, "Ready") is None
    assert condition({}, "Ready") is None


def test_a_refusal_is_what_the_server_said(cluster):
    assert "against the rules" in cluster.refusal({"kind": "Pod"}, "there")


def test_a_manifest_that_is_taken_is_no_refusal(cluster, tmp_path):
    (tmp_path / "answer").write_text("pod/x created")
    with pytest.raises(AssertionError, match="it was not refused: pod/x created"):
        cluster.refusal({"kind": "Pod"})
    assert json.loads((tmp_path / "stdin").read_text()) == {"kind": "Pod"}


@pytest.mark.parametrize(
    "seen, is_found",
    [(2, True), (1, False)],
    ids=["for this generation", "for an older generation"],
)
def test_a_condition_counts_for_the_generation_it_names(cluster, tmp_path, seen, is_found):
    state = {"type": "Ready", "status": "True", "observedGeneration": seen}
    resource = {"metadata": {"generation": 2}, "status": {"conditions": [state]}}
    (tmp_path / "answer").write_text(json.dumps(resource))
    if is_found:
        assert cluster.wait_condition("cluster", "fleet", "there", within_s=0) == resource
    else:
        with pytest.raises(AssertionError, match="cluster fleet to be Ready"):
            cluster.wait_condition("cluster", "fleet", "there", within_s=0)
    assert "-n there get cluster fleet" in (tmp_path / "asked").read_text()
