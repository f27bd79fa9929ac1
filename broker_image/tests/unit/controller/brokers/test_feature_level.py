import pytest
from logfleet.config.keys import BROKER_KEYS
from logfleet.controller.brokers.feature_level import (
    FEATURE,
    LEVEL_MAX,
    NAMED_MAX,
    TRANSACTION_FEATURE,
    TRANSACTION_VERSION,
    TRANSACTIONS,
    Feature,
    Update,
    cannot_join,
    features,
    needs,
    transactions_allowed,
    update_features,
)
from logfleet.controller.brokers.fencing import newcomers
from logfleet.controller.changes.store_writes import pack
from logfleet.metadata.kinds.cluster import FEATURES, FeaturesValue
from logfleet.wire.errors import ErrorCode
from logfleet.wire.refusal import Refusal

SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 2, 3


def asked(cluster, *updates: Update):
    return update_features(cluster.image, 1, updates, "9.9.9")


def raised(cluster, level: int = 2):
    steps = asked(cluster, Update(FEATURE, level))
    assert not isinstance(steps, Refusal), steps
    return pack(cluster.epoch, steps)


def refused(cluster, *updates: Update) -> str:
    answer = asked(cluster, *updates)
    assert isinstance(answer, Refusal)
    assert answer.error is ErrorCode.INVALID_UPDATE_VERSION
    return answer.message


def test_a_store_without_the_key_is_at_level_1_and_is_raised_once_all_brokers_can_do_it(cluster):
    cluster.start(1, 2, level=2)
    assert cluster.image.features.level == 1
    (txn,) = raised(cluster)
    assert cluster.commit(txn)
    held = cluster.keyspace.get(FEATURES.prefix)
    assert held.value == b'{"level":2,"by":"9.9.9"}'
    assert cluster.image.features.level == 2
    assert cluster.image.features.revision == held.mod_revision
    assert asked(cluster, Update(FEATURE, 2)) == (), "it is so already"


@pytest.mark.parametrize(
    "update, says",
    [
        (Update("metadata.version", 20), "Local controller 1 does not support this feature."),
        (Update(FEATURE, 0), f"Local controller 1 only supports versions 1-{LEVEL_MAX}"),
        (Update(FEATURE, -1), f"Local controller 1 only supports versions 1-{LEVEL_MAX}"),
        (
            Update(FEATURE, LEVEL_MAX + 1),
            f"Local controller 1 only supports versions 1-{LEVEL_MAX}",
        ),
        (Update(FEATURE, 2, 0), "The controller does not support the given upgrade type."),
        (Update(FEATURE, 2, 4), "The controller does not support the given upgrade type."),
        (Update(FEATURE, 2, SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
    ],
)
def test_it_is_refused_in_kafkas_words(cluster, update, says):
    cluster.start(1, level=2)
    whole = f"Invalid update version {update.level} for feature {update.feature}. {says}"
    assert refused(cluster, update) == whole
    assert refused(cluster, Update(FEATURE, 2), update) == whole, "then nothing is done at all"


@pytest.mark.parametrize("kind", [1, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_it_is_never_lowered(cluster, kind):
    cluster.start(1, level=2)
    cluster.put(FEATURES.prefix, FeaturesValue(2))
    assert "is never lowered" in refused(cluster, Update(FEATURE, 1, kind))


def test_brokers_that_cannot_do_it_and_those_that_do_not_run_are_named(cluster):
    cluster.start(1, level=2)
    cluster.start(2)
    cluster.start(3, level=2)
    cluster.stop(3)
    cluster.register(4)
    said = refused(cluster, Update(FEATURE, 2))
    assert "Broker 2 only supports versions 1-1; Broker 3 is not running" in said
    assert "kafka-cluster unregister --id 3" in said
    assert "Broker 4 only supports versions 1-1" in said, "also one that was not let in yet"
    assert "Broker 1 " not in said


def test_of_many_some_are_named_and_the_rest_is_counted(cluster):
    cluster.start(*range(NAMED_MAX + 5))
    said = refused(cluster, Update(FEATURE, 2))
    assert said.count("only supports") == NAMED_MAX
    assert said.endswith("; and 5 more")


def test_a_raise_that_was_decided_before_somebody_registered_changes_nothing(cluster):
    cluster.start(1, level=2)
    (late,) = raised(cluster)
    cluster.put(FEATURES.prefix, FeaturesValue())  # as each registration does
    assert not cluster.commit(late)
    assert cluster.image.features.level == 1


def test_a_broker_that_did_not_look_at_the_level_is_let_in_by_nobody(cluster):
    cluster.start(1, level=2)
    cluster.put(FEATURES.prefix, FeaturesValue(2))
    cluster.start(2)
    assert cluster.image.brokers[2].is_fenced
    assert newcomers(cluster.image) == [], "nor does anything wait for it"
    cluster.stop(2)
    cluster.start(2, level=2)
    assert cluster.image.brokers[2].is_active


def test_who_must_not_take_part_is_told_what_to_run():
    assert cannot_join(FeaturesValue(2, "0.3.0"), 2) == ""
    assert cannot_join(FeaturesValue(2, "0.3.0"), 1) == (
        "the cluster is at level 2 of logfleet.version, and this broker supports up to 1: "
        "run the version that raised it (0.3.0) or a later one"
    )


def test_what_needs_a_level_says_how_it_is_raised(cluster):
    assert "`kafka-features upgrade --feature logfleet.version=2`" in needs(cluster.image, 2, "It")
    cluster.put(FEATURES.prefix, FeaturesValue(2))
    assert needs(cluster.image, 2, "It") == ""


def test_transactions_are_allowed_from_their_level_on(cluster):
    cluster.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS - 1))
    assert not transactions_allowed(cluster.image)
    cluster.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS))
    assert transactions_allowed(cluster.image)


def test_the_version_of_transactions_follows_from_the_level(cluster):
    cluster.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS - 1))
    own = Feature(FEATURE, 1, TRANSACTIONS, TRANSACTIONS - 1)
    assert list(features(cluster.image, TRANSACTIONS)) == [own]
    cluster.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS))
    _, kafkas = features(cluster.image, TRANSACTIONS)
    assert kafkas == Feature("transaction.version", 0, 2, 2)


@pytest.mark.parametrize(
    "version, kind, reason",
    [
        (TRANSACTION_VERSION + 1, 1, "Local controller 1 only supports versions 0-2"),
        (-1, 1, "Local controller 1 only supports versions 0-2"),
        (1, SAFE_DOWNGRADE, "It is at 2, and is never lowered"),
        (0, UNSAFE_DOWNGRADE, "It is at 2, and is never lowered"),
        (2, 4, "The controller does not support the given upgrade type."),
    ],
)
def test_the_version_of_transactions_is_not_changed(cluster, version, kind, reason):
    cluster.put(FEATURES.prefix, FeaturesValue(TRANSACTIONS))
    assert asked(cluster, Update(TRANSACTION_FEATURE, TRANSACTION_VERSION)) == (), (
        "it is so already"
    )
    assert reason in refused(cluster, Update(TRANSACTION_FEATURE, version, kind))


def test_without_transactions_their_version_is_no_feature(cluster):
    message = refused(cluster, Update(TRANSACTION_FEATURE, TRANSACTION_VERSION))
    assert message.endswith("Local controller 1 does not support this feature.")


def test_a_broker_can_do_what_its_version_can_unless_it_is_told_to_do_less():
    key = BROKER_KEYS["logfleet.feature.level.max"]
    assert key.default == str(LEVEL_MAX)
    assert [key.parse(str(level)) for level in (1, LEVEL_MAX)] == [1, LEVEL_MAX]
