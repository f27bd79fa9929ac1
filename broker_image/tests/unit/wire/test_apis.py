from logfleet.wire.apis import API_BY_KEY, API_BY_NAME, api_of
from logfleet.wire.messages import FetchRequest, FetchResponse

# What a fresh Apache Kafka 4.4.0 broker answered to ApiVersions: key, lowest and highest version.
ROW = """
Produce 0 0 13, Fetch 1 4 18, ListOffsets 2 1 11, Metadata 3 0 13, OffsetCommit 8 2 10, OffsetFetch 9 1 10,
FindCoordinator 10 0 6, JoinGroup 11 0 9, Heartbeat 12 0 4, LeaveGroup 13 0 5, SyncGroup 14 0 5,
DescribeGroups 15 0 6, ListGroups 16 0 5, SaslHandshake 17 0 1, ApiVersions 18 0 5, CreateTopics 19 2 7,
DeleteTopics 20 1 6, DeleteRecords 21 0 2, InitProducerId 22 0 5, OffsetForLeaderEpoch 23 2 4,
AddPartitionsToTxn 24 0 5, AddOffsetsToTxn 25 0 4, EndTxn 26 0 5, WriteTxnMarkers 27 1 2,
TxnOffsetCommit 28 0 6, DescribeAcls 29 1 3, CreateAcls 30 1 3, DeleteAcls 31 1 3, DescribeConfigs 32 1 4,
AlterConfigs 33 0 2, AlterReplicaLogDirs 34 1 2, DescribeLogDirs 35 1 5, SaslAuthenticate 36 0 2,
CreatePartitions 37 0 3, CreateDelegationToken 38 1 3, RenewDelegationToken 39 1 2,
ExpireDelegationToken 40 1 2, DescribeDelegationToken 41 1 3, DeleteGroups 42 0 3, ElectLeaders 43 0 2,
IncrementalAlterConfigs 44 0 1, AlterPartitionReassignments 45 0 1, ListPartitionReassignments 46 0 0,
OffsetDelete 47 0 0, DescribeClientQuotas 48 0 1, AlterClientQuotas 49 0 1,
DescribeUserScramCredentials 50 0 0, AlterUserScramCredentials 51 0 0, DescribeQuorum 55 0 2,
UpdateFeatures 57 0 2, DescribeCluster 60 0 2, DescribeProducers 61 0 0, UnregisterBroker 64 0 0,
DescribeTransactions 65 0 0, ListTransactions 66 0 2, ConsumerGroupHeartbeat 68 0 1,
ConsumerGroupDescribe 69 0 1, ListConfigResources 74 0 1, DescribeTopicPartitions 75 0 0,
ShareGroupHeartbeat 76 1 1, ShareGroupDescribe 77 1 1, ShareFetch 78 1 2, ShareAcknowledge 79 1 2,
AddRaftVoter 80 0 1, RemoveRaftVoter 81 0 0, InitializeShareGroupState 83 0 0, ReadShareGroupState 84 0 0,
WriteShareGroupState 85 0 1, DeleteShareGroupState 86 0 0, ReadShareGroupStateSummary 87 0 1,
StreamsGroupHeartbeat 88 0 1, StreamsGroupDescribe 89 0 1, DescribeShareGroupOffsets 90 0 1,
AlterShareGroupOffsets 91 0 0, DeleteShareGroupOffsets 92 0 0, StreamsGroupTopologyDescriptionUpdate 93 0 0,
UnregisterController 94 0 0
"""


def test_the_row_is_that_of_kafka_4_4_0() -> None:
    expected = {tuple(entry.split()) for entry in ROW.split(",")}
    ours = {
        (api.name, str(api.key), str(api.min_version), str(api.max_version))
        for api in API_BY_KEY.values()
        if api.advertised
    }
    assert ours == expected


def test_envelope_is_known_and_not_advertised() -> None:
    envelope = API_BY_KEY[58]
    assert (envelope.name, envelope.advertised) == ("Envelope", False)
    assert envelope.serves(0)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    produce = API_BY_NAME["Produce"]
    assert produce.min_version == 0
    assert not produce.serves(2)
    assert produce.serves(3)
    assert produce.serves(13)
    assert not produce.serves(14)


def test_headers_follow_the_flexible_versions() -> None:
    fetch = API_BY_NAME["Fetch"]
    assert [fetch.request_header_version(version) for version in (11, 12)] == [1, 2]
    assert [fetch.response_header_version(version) for version in (11, 12)] == [0, 1]


def test_api_versions_is_always_answered_with_header_0() -> None:
    api = API_BY_NAME["ApiVersions"]
    assert {api.response_header_version(version) for version in range(7)} == {0}
    assert [api.request_header_version(version) for version in (2, 3, 99)] == [1, 2, 2]


def test_classes_and_apis_find_each_other() -> None:
    assert API_BY_KEY[1].request is FetchRequest
    assert API_BY_KEY[1].response is FetchResponse
    assert api_of(FetchRequest) is API_BY_KEY[1]
