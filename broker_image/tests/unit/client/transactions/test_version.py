from logfleet.client.transactions.version import FinalizedFeatures


def test_levels_of_the_largest_epoch_count() -> None:
    features = FinalizedFeatures()
    assert features.level("transaction.version") == 0
    features.learn(5, {"transaction.version": 2})
    features.learn(4, {"transaction.version": 1})
    features.learn(5, {"transaction.version": 1})
    assert (features.epoch, features.level("transaction.version")) == (5, 2)
    features.learn(6, {"group.version": 1})
    assert (features.level("transaction.version"), features.level("group.version")) == (0, 1)


def test_a_broker_that_does_not_know_any_changes_nothing() -> None:
    features = FinalizedFeatures()
    features.learn(-1, {"transaction.version": 2})
    assert features.level("transaction.version") == 0
