"""skaffold.yaml names only what is there. No skaffold runs here, so each name is checked against the tree."""

import re
from typing import Any

import pytest
import yaml

from e2e.harness.images import ROOT

SKAFFOLD = yaml.safe_load((ROOT / "skaffold.yaml").read_text())
ARTIFACTS = SKAFFOLD["build"]["artifacts"]
ADDED = [patch["value"] for profile in SKAFFOLD["profiles"] for patch in profile["patches"]]
RELEASES = [*SKAFFOLD["deploy"]["helm"]["releases"], *ADDED]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def values_of(chart: str) -> dict[str, object]:
    values = yaml.safe_load((ROOT / chart / "values.yaml").read_text())
    assert isinstance(values, dict)
    return values


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda artifact: artifact["image"])
def test_every_image_is_a_target_of_the_dockerfile(artifact):
    assert artifact["docker"]["dockerfile"] == "Dockerfile"
    target = artifact["docker"]["target"]
    assert re.search(rf"^FROM \S+ AS {target}$", DOCKERFILE, re.MULTILINE)
    assert artifact["image"] == f"logfleet/{target}"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release["name"])
def test_every_chart_exists_with_the_values_that_are_set(release):
    values = values_of(release["chartPath"])
    for path in [*release.get("setValueTemplates", {}), *release.get("setValues", {})]:
        here: Any = values
        for part in re.sub(r"\[\d+\].*", "", path).split("."):
            assert part in here, path
            here = here[part]


def test_templates_name_images_that_are_built_and_every_image_of_a_chart_is_named():
    used = set(re.findall(r"\.IMAGE_(?:REPO|TAG)_(\w+)", str(RELEASES)))
    assert used == {"logfleet_operator", "logfleet_broker", "logfleet_spark"}
    assert used <= {artifact["image"].replace("/", "_") for artifact in ARTIFACTS}


def test_what_profiles_add_are_releases_with_files_that_there_are():
    patches = [patch for profile in SKAFFOLD["profiles"] for patch in profile["patches"]]
    assert {patch["path"] for patch in patches} == {"/deploy/helm/releases/-"}
    files = [file for release in ADDED for file in release["valuesFiles"]]
    assert files
    assert all((ROOT / file).exists() for file in files)


def test_plain_manifests_exist():
    for path in SKAFFOLD["manifests"]["rawYaml"]:
        assert list(yaml.safe_load_all((ROOT / path).read_text()))


def test_what_is_forwarded_is_a_service_of_a_chart():
    (forward,) = SKAFFOLD["portForward"]
    release = next(each for each in RELEASES if each["name"] == forward["resourceName"])
    assert release["namespace"] == forward["namespace"]
    assert values_of(release["chartPath"])["ports"] == {"http": forward["port"]}


def test_topics_are_made_with_fields_that_a_topic_has():
    crd = yaml.safe_load((ROOT / "crds" / "topics.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    set_values = next(each for each in RELEASES if each["name"] == "fleet")["setValues"]
    named = {path.rpartition(".")[2] for path in set_values}
    assert named - {"name"} <= set(fields)
