from pathlib import Path

import pytest

from e2e.lab.settings import settings_from

HOME = Path("/home/me")


def test_the_cache_is_where_xdg_says_and_lab_root_overrides_it():
    assert settings_from({}, HOME).root == HOME / ".cache/logfleet/lab"
    assert settings_from({"XDG_CACHE_HOME": "/x"}, HOME).root == Path("/x/logfleet/lab")
    both = {"XDG_CACHE_HOME": "/x", "LAB_ROOT": "/y"}
    assert settings_from(both, HOME).root == Path("/y")


def test_zones_get_addresses_of_their_own():
    zones = settings_from({}, HOME).zones
    assert [zone.name for zone in zones] == ["a", "b", "c"]
    assert len({zone.node_ip for zone in zones}) == 3
    assert len({zone.pod_cidr for zone in zones}) == 3


def test_zones_are_named_by_the_environment():
    settings = settings_from({"LAB_ZONES": "east west"}, HOME)
    assert settings.zone("west").node == "node-west"
    with pytest.raises(KeyError):
        settings.zone("a")
