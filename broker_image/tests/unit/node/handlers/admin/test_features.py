import pytest
from logfleet.metadata.kinds.brokers import BROKER, FENCE, FENCED, BrokerValue
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import UpdateFeaturesRequest

pytestmark = pytest.mark.asyncio
FEATURE = "logfleet.version"
FAILED = "The update failed for all features since the following feature had an error: "


def request(level: int, feature: str = FEATURE, *, validate_only: bool = False):
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)


async def able(node) -> None:
    """This broker supports level 2; it says so without a new registration."""
    registration = BrokerValue("again", node.image.brokers[node.node_id].value.listeners, level=2)
    await node.write(BROKER.put(node.node_id, registration))


async def ask(node, *given, version: int = 2, **more) -> tuple[str, str | None]:
    answer = await node.ask(request(*given, **more), version)
    return ErrorCode(answer.error_code).name, answer.error_message


async def test_it_is_raised_and_reported_at_once(node):
    await able(node)
    assert await ask(node, 2) == ("NONE", None)
    assert node.image.features.level == 2
    assert await ask(node, 2) == ("NONE", None)


async def test_a_validated_level_stays_as_it_is(node):
    await able(node)
    assert await ask(node, 2, validate_only=True) == ("NONE", None)
    assert node.image.features.level == 1


async def test_rows_are_reported_by_versions_before_2_and_only_of_what_was_done(node):
    await able(node)
    for version in (0, 1):
        answer = await node.ask(request(2), version)
        assert [(row.feature, row.error_code) for row in answer.results] == [(FEATURE, 0)]
        answer = await node.ask(request(3), version)
        assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert answer.results == []
    assert (await node.ask(request(2), 2)).results == []


async def test_a_broker_that_cannot_do_it_is_named(node):
    assert await ask(node, 2) == (
        "INVALID_UPDATE_VERSION",
        (
            f"{FAILED}Invalid update version 2 for feature {FEATURE}. "
            "Broker 1 only supports versions 1-1"
        ),
    )


async def test_a_broker_that_has_stopped_counts_until_it_is_unregistered(node):
    await able(node)
    await node.write(BROKER.put(7, BrokerValue("i", (), level=2)))
    await node.until(lambda image: image.brokers[7].is_active)
    await node.write(BROKER.delete(7))
    await node.until(lambda image: image.fences[7].state == FENCED)
    assert "Broker 7 is not running" in ((await ask(node, 2))[1] or "")
    await node.write(FENCE.delete(7))
    assert await ask(node, 2) == ("NONE", None)


async def test_kafkas_own_features_are_not_supported(node):
    error, message = await ask(node, 1, "transaction.version")
    assert error == "INVALID_UPDATE_VERSION"
    assert (message or "").endswith("Local controller 1 does not support this feature.")


async def test_another_broker_forwards_it(start):
    controller = await start(1)
    await controller.register()
    other = await start(2, stands=False)
    await other.register()
    await able(controller)
    await able(other)
    assert await ask(other, 2) == ("NONE", None)
    assert other.image.features.level == 2
