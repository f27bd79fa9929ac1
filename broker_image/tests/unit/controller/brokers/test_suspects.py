from logfleet.controller.brokers.suspects import fence_suspect, to_be_probed, watched_by
from logfleet.metadata.kinds.brokers import FENCED, SUSPECT, SuspectValue
from logfleet.types import BrokerEpoch

from broker_image.tests.unit.controller.cluster_rig import Cluster


def report(cluster: Cluster, broker_id: int, *reporters: int) -> int:
    epoch = cluster.image.brokers[broker_id].epoch
    for reporter in reporters:
        cluster.put(SUSPECT.key((broker_id, reporter)), SuspectValue(epoch))
    return epoch


def test_each_broker_watches_the_next_ones_in_the_circle_and_is_watched_by_as_many(cluster):
    cluster.start(1, 2, 3, 5, 8)
    assert list(watched_by(cluster.image, 5)) == [8, 1, 2]
    watched = [each for broker in (1, 2, 3, 5, 8) for each in watched_by(cluster.image, broker)]
    assert sorted(watched) == sorted([1, 2, 3, 5, 8] * 3)


def test_two_reports_have_a_broker_probed_and_one_has_not(cluster):
    cluster.start(1, 2, 3)
    report(cluster, 2, 1)
    assert to_be_probed(cluster.image) == {}
    epoch = report(cluster, 2, 3)
    assert to_be_probed(cluster.image) == {2: epoch}


def test_the_only_other_broker_is_enough(cluster):
    cluster.start(1, 2)
    epoch = report(cluster, 2, 1)
    assert to_be_probed(cluster.image) == {2: epoch}


def test_a_report_on_an_earlier_registration_is_none(cluster):
    cluster.start(1, 2, 3)
    report(cluster, 2, 1, 3)
    cluster.stop(2)
    cluster.start(2)
    assert to_be_probed(cluster.image) == {}


def test_who_is_fenced_is_not_probed_again_and_its_reports_are_gone(cluster):
    cluster.start(1, 2, 3)
    epoch = report(cluster, 2, 1, 3)
    for txn in fence_suspect(cluster.image, cluster.epoch, 2, BrokerEpoch(epoch)):
        assert cluster.commit(txn)
    assert cluster.image.fences[2].state == FENCED
    assert cluster.image.suspects == {}
    report(cluster, 2, 1, 3)
    assert to_be_probed(cluster.image) == {}


def test_a_registration_that_is_over_is_not_fenced(cluster):
    cluster.start(1, 2, 3)
    epoch = report(cluster, 2, 1, 3)
    cluster.stop(2)
    cluster.start(2)
    assert fence_suspect(cluster.image, cluster.epoch, 2, BrokerEpoch(epoch)) == ()
