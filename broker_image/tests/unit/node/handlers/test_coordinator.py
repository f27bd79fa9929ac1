import pytest
from logfleet.controller.brokers.feature_level import TRANSACTIONS
from logfleet.coordinators.partition import partition_for
from logfleet.groups.records import OFFSETS_TOPIC
from logfleet.node.handlers.coordinator import HANDLERS, find_coordinator
from logfleet.transactions.records import TRANSACTION_STATE_TOPIC
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import FindCoordinatorRequest

from broker_image.tests.unit.node.handlers.groups_rig import GroupsRig
from broker_image.tests.unit.node.transactions.transactions_rig import TransactionsRig

pytestmark = pytest.mark.asyncio


@pytest.fixture
def rig(host, tmp_path):
    rig = GroupsRig(host, str(tmp_path))
    host.know_broker(1, "one.example", 9092)
    return rig


def single(rig, version, key_type=0):
    request = FindCoordinatorRequest(key="g", key_type=key_type)
    return find_coordinator(rig.host, request, rig.host.context(version))


def batched(rig, version, *keys, key_type=0):
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    return find_coordinator(rig.host, request, rig.host.context(version)).coordinators


async def test_a_group_is_coordinated_by_the_leader_of_its_partition(rig):
    rig.host.know_broker(2, "two.example", 9093)
    rig.host.know_broker(3, "three.example", 9094)
    leaders = {0: 3, 1: 2, 2: 3}
    rig.host.know_topic(OFFSETS_TOPIC, leaders)
    found = batched(rig, 4, "a", "b", "c", "d")
    assert [each.key for each in found] == ["a", "b", "c", "d"]
    assert [each.node_id for each in found] == [leaders[partition_for(key, 3)] for key in "abcd"]
    assert {(each.node_id, each.host, each.port, each.error_code) for each in found} == {
        (3, "three.example", 9094, 0),
        (2, "two.example", 9093, 0),
    }


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_before_version_4_one_group_is_asked_for(rig, version):
    rig.host.know_broker(2, "two.example", 9093)
    rig.host.know_topic(OFFSETS_TOPIC, {0: 2})
    response = single(rig, version)
    assert (response.node_id, response.host, response.port) == (2, "two.example", 9093)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, "NONE")


async def test_this_broker_is_no_coordinator_before_it_leads(rig):
    """Its image makes it the leader, but the leader epoch is not on disk yet.

    It would answer NOT_COORDINATOR.
    """
    rig.host.know_topic(OFFSETS_TOPIC, {0: 1})
    assert single(rig, 3).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.host.host(OFFSETS_TOPIC, 0)
    assert single(rig, 3).node_id == 1


async def test_asking_has_the_offsets_topic_created(rig, until):
    (found,) = batched(rig, 6, "g")
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    await until(lambda: rig.created == [OFFSETS_TOPIC])


async def test_a_partition_without_leader_has_no_coordinator(rig):
    rig.host.know_topic(OFFSETS_TOPIC, {0: -1})
    assert single(rig, 1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.host.know_topic(OFFSETS_TOPIC, {0: 7})  # a broker that is not there
    assert single(rig, 1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.created == []


@pytest.mark.parametrize(
    "key_type,error",
    [(1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (2, ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
async def test_a_group_that_is_not_coordinated_yet_gets_an_error(rig, key_type, error):
    (found,) = batched(rig, 6, "key", key_type=key_type)
    assert found.error_code == error
    assert "does not serve" in found.error_message
    assert rig.created == []


async def test_an_old_client_learns_too_that_transactions_are_not_served(rig):
    answer = single(rig, 1, key_type=1)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert answer.error_message == "This version does not serve transactions."


async def test_where_the_level_is_too_low_the_client_reads_how_it_is_raised(rig):
    rig.host.config.logfleet_feature_level_max = TRANSACTIONS
    (found,) = batched(rig, 6, "a", key_type=1)
    assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "needs level 3 of logfleet.version" in found.error_message
    assert "`logfleet features upgrade 3`" in found.error_message


async def test_a_transactional_id_is_coordinated_by_the_leader_of_its_partition(
    rig, tmp_path, until
):
    transactions = TransactionsRig(rig.host, str(tmp_path))
    (missing,) = batched(rig, 6, "a", key_type=1)
    assert missing.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    await until(lambda: transactions.created)
    assert [name for name, *_ in transactions.created] == [TRANSACTION_STATE_TOPIC]
    assert rig.created == []
    rig.host.know_broker(2, "two.example", 9093)
    rig.host.know_topic(TRANSACTION_STATE_TOPIC, {0: 2})
    (found,) = batched(rig, 6, "a", key_type=1)
    assert (found.node_id, found.host, found.port) == (2, "two.example", 9093)
    assert single(rig, 1, key_type=1).node_id == 2


@pytest.mark.parametrize("version,key_type", [(4, 2), (6, 3)])
async def test_a_kind_of_key_that_the_version_lacks_is_refused(rig, version, key_type):
    (found,) = batched(rig, version, "key", key_type=key_type)
    assert found.error_code == ErrorCode.INVALID_REQUEST


async def test_it_serves_one_api():
    assert {FindCoordinatorRequest: find_coordinator} == HANDLERS
