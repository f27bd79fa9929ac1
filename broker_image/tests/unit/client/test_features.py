from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from logfleet.client.cluster import Client
from logfleet.client.errors import KafkaError
from logfleet.client.features import describe_level, raise_level
from logfleet.controller.brokers.feature_level import FEATURE, FeatureLevel
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from broker_image.tests.unit.client.fake_broker import FakeBroker

pytestmark = pytest.mark.asyncio
NAMED = "Broker 2 only supports versions 1-2"


class LevelledBroker(FakeBroker):
    """At level 1; itself it can do `highest`, of all brokers together nobody says so above `possible`."""

    def __init__(self, highest: int, possible: int) -> None:
        super().__init__()
        self.highest, self.possible, self.level = highest, possible, 1
        self.answers[ApiVersionsRequest] = self.levels
        self.answers[UpdateFeaturesRequest] = self.update

    def levels(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        answer = self.api_versions(request)
        assert isinstance(answer, ApiVersionsResponse)
        able = ApiVersionsResponse.SupportedFeatureKey(
            name=FEATURE, min_version=1, max_version=self.highest
        )
        holds = ApiVersionsResponse.FinalizedFeatureKey(
            name=FEATURE, max_version_level=self.level, min_version_level=self.level
        )
        answer.supported_features, answer.finalized_features = [able], [holds]
        return answer

    def update(self, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        (wanted,) = request.feature_updates
        if wanted.max_version_level > self.possible:
            said = (
                f"Invalid update version {wanted.max_version_level} for feature {FEATURE}. {NAMED}"
            )
            code = ErrorCode.INVALID_UPDATE_VERSION
            return UpdateFeaturesResponse(error_code=code, error_message=said)
        if not request.validate_only:
            self.level = wanted.max_version_level
        return UpdateFeaturesResponse(error_message=None)


@pytest_asyncio.fixture
async def broker() -> AsyncIterator[LevelledBroker]:
    made = LevelledBroker(highest=3, possible=2)
    async with made.running():
        yield made


async def test_the_highest_possible_level_is_looked_for_from_above_and_changes_nothing(
    broker: LevelledBroker,
) -> None:
    async with Client(broker.bootstrap) as client:
        assert await describe_level(client) == FeatureLevel(1, 2, NAMED)
    asked = [each.feature_updates[0].max_version_level for each in broker.of(UpdateFeaturesRequest)]
    assert asked == [3, 2]
    assert broker.level == 1


async def test_where_no_higher_one_is_possible_who_cannot_is_told(broker: LevelledBroker) -> None:
    broker.possible = 1
    async with Client(broker.bootstrap) as client:
        assert await describe_level(client) == FeatureLevel(1, 1, NAMED)


async def test_a_controller_that_knows_no_levels_objects_to_all(broker: LevelledBroker) -> None:
    said = "The controller refused the forwarded request: INVALID_REQUEST."
    code = ErrorCode.INVALID_REQUEST
    broker.answers[UpdateFeaturesRequest] = lambda _: UpdateFeaturesResponse(
        error_code=code, error_message=said
    )
    async with Client(broker.bootstrap) as client:
        assert await describe_level(client) == FeatureLevel(1, 1, said)


async def test_it_is_raised_or_refused_with_the_reason(broker: LevelledBroker) -> None:
    async with Client(broker.bootstrap) as client:
        await raise_level(client, 2)
        assert await describe_level(client) == FeatureLevel(2, 2, NAMED)
        with pytest.raises(KafkaError, match=NAMED):
            await raise_level(client, 3)


async def test_brokers_that_tell_of_no_feature_are_at_level_1() -> None:
    async with FakeBroker().running() as broker, Client(broker.bootstrap) as client:
        assert await describe_level(client) == FeatureLevel(1, 1)
        assert broker.of(UpdateFeaturesRequest) == []
