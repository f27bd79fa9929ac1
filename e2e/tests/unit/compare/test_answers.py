"""Two brokers that behave the same give equal plain answers; those that do not, do not."""

from logfleet.records.record import ProducerStamp, Record, build_batch
from logfleet.wire import messages as m

from e2e.compare.answers import Names, batches, plain

FIRST, SECOND = b"1" * 16, b"2" * 16
UUID = "9f9a3c1e-3f52-4f0a-a1c5-0d4c7a2f9f11"
OTHER = "0b8e2c2a-5d3c-4c43-8f57-6f1ad3a2ce90"


def created(topic_id: bytes) -> m.CreateTopicsResponse:
    row = m.CreateTopicsResponse.CreatableTopicResult(name="t", topic_id=topic_id)
    return m.CreateTopicsResponse(topics=[row])


def test_an_id_is_called_after_the_topic_it_stands_beside() -> None:
    names = Names()
    (row,) = plain(created(FIRST), 7, names)["topics"]
    assert row["topic_id"] == "<id of t>"
    fetched = m.FetchResponse.FetchableTopicResponse(topic_id=FIRST)
    (topic,) = plain(m.FetchResponse(responses=[fetched]), 13, names)["responses"]
    assert topic["topic_id"] == "<id of t>"
    assert "topic" not in topic  # version 13 has no names


def test_ids_are_numbered_by_their_first_appearance_so_that_their_use_is_compared() -> None:
    def joined(member: str, leader: str) -> dict[str, object]:
        return plain(m.JoinGroupResponse(member_id=member, leader=leader), 5, names)

    names = Names()
    one = joined(f"wire-{UUID}", f"wire-{UUID}")
    assert one["member_id"] == one["leader"] == "wire-<uuid 1>"
    two = joined(f"wire-{OTHER}", f"wire-{UUID}")
    assert (two["member_id"], two["leader"]) == ("wire-<uuid 2>", "wire-<uuid 1>")


def test_no_id_is_told_from_some_id() -> None:
    names = Names()
    (row,) = plain(created(bytes(16)), 7, names)["topics"]
    assert row["topic_id"] == bytes(16)
    answer = plain(m.InitProducerIdResponse(producer_id=-1), 4, names)
    assert answer["producer_id"] == -1
    assert plain(m.InitProducerIdResponse(producer_id=0), 4, names)["producer_id"] == "<producer 1>"


def test_a_time_of_the_run_is_now_and_others_stay() -> None:
    names = Names(now_from_ms=1_000)
    kind = m.ListOffsetsResponse
    rows = [
        kind.ListOffsetsPartitionResponse(partition_index=n, timestamp=time)
        for n, time in enumerate((-1, 999, 1_000))
    ]
    topic = kind.ListOffsetsTopicResponse(name="t", partitions=rows)
    (plain_topic,) = plain(kind(topics=[topic]), 7, names)["topics"]
    assert [row["timestamp"] for row in plain_topic["partitions"]] == [-1, 999, "<now>"]


def test_whether_there_is_an_error_message_is_compared_and_its_words_are_not() -> None:
    names = Names()
    texts = [None, "", "that is no name"]
    assert [
        plain(m.FindCoordinatorResponse(error_message=text), 1, names)["error_message"]
        for text in texts
    ] == [None, "<text>", "<text>"]


def test_what_other_cases_made_is_left_out() -> None:
    kind = m.MetadataResponse
    topics = [
        kind.MetadataResponseTopic(name=name) for name in ("oracle-a-t", "oracle-b-t", "wire")
    ]
    answer = plain(kind(topics=topics), 9, Names("oracle-a-"))
    assert [row["name"] for row in answer["topics"]] == ["oracle-a-t", "wire"]


def test_who_is_in_sync_is_a_set_and_replicas_are_a_list() -> None:
    kind = m.MetadataResponse
    row = kind.MetadataResponsePartition(replica_nodes=[3, 1, 2], isr_nodes=[2, 3])
    topic = kind.MetadataResponseTopic(name="t", partitions=[row])
    ((found,),) = (each["partitions"] for each in plain(kind(topics=[topic]), 9, Names())["topics"])
    assert (found["replica_nodes"], found["isr_nodes"]) == ([3, 1, 2], [2, 3])
    row.isr_nodes = [3, 2]
    assert plain(kind(topics=[topic]), 9, Names())["topics"][0]["partitions"][0] == found


def test_records_are_compared_batch_by_batch_without_the_one_cut_off() -> None:
    batch = bytes(
        build_batch(
            [Record(b"k", None, 5, (("h", b"v"),))], base_offset=7, producer=ProducerStamp(9, 0, 3)
        )
    )
    (found,) = batches(batch + batch[:-1], Names())
    assert found["base_offset"] == 7
    assert found["producer_id"] == "<producer 1>"
    assert found["base_sequence"] == 3
    assert found["size"] == len(batch)
    assert found["records"] == [
        {"offset": 7, "timestamp": 5, "key": b"k", "value": None, "headers": [["h", b"v"]]}
    ]
