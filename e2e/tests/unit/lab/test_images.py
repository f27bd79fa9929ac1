from pathlib import Path

import pytest
import yaml

from e2e.lab.images import base_image, own_images
from e2e.lab.lab import ADDONS
from e2e.lab.settings import PAUSE_IMAGE, Settings

SETTINGS = Settings(root=Path("/cache"), zones=())


@pytest.fixture
def recipes(tmp_path):
    """The lab's own images, with a busybox that need not be installed on this machine."""
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\n")
    return own_images(SETTINGS, busybox)


def test_the_addons_run_only_images_that_the_lab_brings(recipes):
    named = {part.split('"')[0] for part in ADDONS.read_text().split('image: "')[1:]}
    for document in yaml.safe_load_all(ADDONS.read_text()):
        if document["kind"] == "Deployment":
            containers = document["spec"]["template"]["spec"]["containers"]
            named |= {container["image"] for container in containers}
    assert named
    assert named <= {recipe.image.name for recipe in recipes}


def test_archives_of_different_images_never_share_a_name(recipes):
    every = [*recipes, base_image()]
    assert len({recipe.archive(SETTINGS) for recipe in every}) == len(every)


def test_the_sandbox_image_is_among_them(recipes):
    assert PAUSE_IMAGE in {recipe.image.name for recipe in recipes}
