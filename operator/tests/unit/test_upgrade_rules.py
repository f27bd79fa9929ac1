import pytest
from logfleet.controller.brokers.feature_level import FeatureLevel
from logfleet.resources.cluster import ClusterSpec, MetadataSpec
from logfleet_operator.settings import Settings
from logfleet_operator.upgrades.rules import broker_image, is_due, unmet, warning

NAMED = "Broker 2 only supports versions 1-1"


@pytest.mark.parametrize(
    "default, image, version, wanted",
    [
        ("logfleet/broker:1", None, None, "logfleet/broker:1"),
        ("logfleet/broker:1", None, "0.2.0", "logfleet/broker:0.2.0"),
        ("logfleet/broker", None, "0.2.0", "logfleet/broker:0.2.0"),
        ("broker:1", None, "0.2.0", "broker:0.2.0"),
        ("mirror:5000/logfleet/broker", None, "0.2.0", "mirror:5000/logfleet/broker:0.2.0"),
        ("mirror:5000/broker:1@sha256:ab", None, "0.2.0", "mirror:5000/broker:0.2.0"),
        ("logfleet/broker:1", "mine:3", "0.2.0", "mine:3"),
        ("logfleet/broker:1", "mine:3", None, "mine:3"),
    ],
)
def test_the_image_is_the_specs_or_the_default_one_of_its_version(
    default: str, image: str | None, version: str | None, wanted: str
) -> None:
    spec = ClusterSpec(pools=[], metadata=MetadataSpec(), image=image, version=version)
    assert broker_image(spec, Settings(broker_image=default)) == wanted


@pytest.mark.parametrize(
    "wanted, found, said",
    [
        (None, FeatureLevel(1, 2), ""),
        (1, FeatureLevel(1, 2), ""),
        (2, FeatureLevel(2, 2), ""),
        (1, FeatureLevel(2, 2), ""),
        (2, FeatureLevel(1, 1, NAMED), f"feature level 2 waits: {NAMED}"),
        (
            3,
            FeatureLevel(1, 2),
            (
                "feature level 3 waits: the brokers' version can do 2 at most; run a later one, or "
                "write 2"
            ),
        ),
    ],
)
def test_a_level_is_as_it_should_be_or_waits_for_what_is_named(
    wanted: int | None, found: FeatureLevel, said: str
) -> None:
    assert not is_due(wanted, found)
    assert unmet(wanted, found, 0) == said


@pytest.mark.parametrize("wanted, possible", [(2, 2), (2, 3), (3, 3)])
def test_a_level_is_raised_when_all_brokers_can_do_it(wanted: int, possible: int) -> None:
    assert is_due(wanted, FeatureLevel(1, possible))


def test_while_nobody_answers_what_was_told_last_counts() -> None:
    waits = "feature level 2 waits: no broker answers"
    assert [unmet(2, None, known) for known in (0, 1, 2, 3)] == [waits, waits, "", ""]


def test_a_spec_that_asks_for_less_is_warned_of() -> None:
    assert "write 2" in warning(1, 2)
    assert [warning(wanted, 2) for wanted in (None, 2, 3)] == ["", "", ""]
