"""UpdateFeatures (KIP-584), done by the controller (Kafka: QuorumController.updateFeatures)."""

from typing import Final

from logfleet import __version__
from logfleet.config.topic import BrokerLayers
from logfleet.controller.brokers.feature_level import FEATURE, Update, update_features
from logfleet.controller.changes.store_writes import pack
from logfleet.controller.running.access import ControllerAccess, ControllerWork
from logfleet.controller.terms.operations import TermDecision
from logfleet.metadata.image import ClusterImage
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from logfleet.wire.refusal import Refusal

ROWS_UNTIL: Final = 1
"""Up to this version an answer has a row for each feature; later it has one error (KIP-1022)."""
_FAILED: Final = (
    "The update failed for all features since the following feature had an error: {message}"
)


async def _update(
    access: ControllerAccess, request: UpdateFeaturesRequest, version: int
) -> UpdateFeaturesResponse:
    updates = [
        Update(each.feature, each.max_version_level, each.upgrade_type)
        for each in request.feature_updates
    ]

    def decide(image: ClusterImage, epoch: int, _: BrokerLayers) -> TermDecision[Refusal | None]:
        steps = update_features(image, access.config.node_id, updates, __version__)
        if isinstance(steps, Refusal):
            return TermDecision((), Refusal(steps.error, _FAILED.format(message=steps.message)))
        return TermDecision(() if request.validate_only else pack(epoch, steps), None)

    refusal = await access.controller.submit(decide)
    if isinstance(refusal, Refusal):
        return _refuse(request, version, refusal)
    rows = [
        UpdateFeaturesResponse.UpdatableFeatureResult(feature=each.feature, error_message=None)
        for each in (request.feature_updates if version <= ROWS_UNTIL else ())
    ]
    return UpdateFeaturesResponse(error_message=None, results=rows)


def _refuse(
    _request: UpdateFeaturesRequest, _version: int, refusal: Refusal
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=refusal.error, error_message=refusal.message)


def _is_shown(
    image: ClusterImage, request: UpdateFeaturesRequest, answer: UpdateFeaturesResponse
) -> bool:
    is_done = answer.error_code == ErrorCode.NONE and not request.validate_only
    return not is_done or all(
        image.features.level >= each.max_version_level
        for each in request.feature_updates
        if each.feature == FEATURE
    )


# Kafka's controller ignores the request's timeout too.
UPDATE: Final = ControllerWork(_update, _refuse, None, _is_shown)
