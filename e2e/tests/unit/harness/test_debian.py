import os
import shutil

import pytest

from e2e.harness.debian import PackagesMissing, install


def test_who_is_not_root_is_told_the_command(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PackagesMissing, match=r"as root, first: apt-get install -y gcc libc6-dev$"):
        install("gcc", "libc6-dev")


def test_without_apt_the_command_is_named_as_well(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(PackagesMissing, match="apt-get install -y kcat"):
        install("kcat")
