"""Which partitions wait for the marker of which transaction, and which broker gets it next."""

from hypothesis import given
from hypothesis import strategies as st
from logfleet.transactions.markers import (
    NO_LEADER,
    ROWS_PER_REQUEST,
    MarkerAnswer,
    MarkerBook,
    MarkerKey,
    MarkersDue,
    WritableMarker,
)
from logfleet.transactions.state import TV2, TopicPartition
from logfleet.types import LeaderEpoch, ProducerEpoch
from logfleet.wire.errors import ErrorCode
from logfleet.wire.messages import WriteTxnMarkersResponse

A, B, C = (TopicPartition("t", index) for index in range(3))
OTHER = TopicPartition("s", 0)
OWNER = "coordinator"
EPOCH = LeaderEpoch(4)


def key(number: int = 0) -> MarkerKey:
    return MarkerKey(f"tx-{number}", 1000 + number, ProducerEpoch(3))


def due(*partitions: TopicPartition, number: int = 0) -> MarkersDue:
    return MarkersDue(
        key(number), is_commit=True, client_version=TV2, partitions=frozenset(partitions)
    )


def response(
    markers: list[WritableMarker], *errors: tuple[TopicPartition, int]
) -> WriteTxnMarkersResponse:
    """NONE for every marker, but for these."""
    codes = dict(errors)
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes.get(TopicPartition(topic.name, index), 0),
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in markers
        ]
    )


def written(*partitions: TopicPartition, number: int = 0) -> MarkerAnswer:
    return MarkerAnswer(OWNER, key(number), frozenset(partitions))


def rows(markers: list[WritableMarker]) -> list[tuple[int, TopicPartition]]:
    return [
        (marker.producer_id, TopicPartition(topic.name, index))
        for marker in markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


class Leaders:
    """Who leads what; a test changes it."""

    def __init__(self, **brokers: int | None) -> None:
        self.brokers = brokers

    def __call__(self, partition: TopicPartition) -> int | None:
        return self.brokers.get(f"{partition.topic}{partition.partition}", 1)


def test_a_broker_gets_all_that_waits_for_it_in_one_request():
    book = MarkerBook(Leaders(t2=2))

    assert book.due(OWNER, EPOCH, due(A, B, C, OTHER), 0) == []
    book.due(OWNER, EPOCH, due(A, number=1), 0)

    assert sorted(book.brokers()) == [1, 2]
    first, second = book.take(1)
    assert (first.producer_id, first.producer_epoch, first.transaction_result) == (1000, 3, True)
    assert (first.coordinator_epoch, first.transaction_version) == (4, 2)
    assert rows([first]) == [(1000, OTHER), (1000, A), (1000, B)]
    assert rows([second]) == [(1001, A)]
    assert rows(book.take(2)) == [(1000, C)]


def test_what_comes_due_meanwhile_goes_with_the_next_request():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)
    sent = book.take(1)

    book.due(OWNER, EPOCH, due(A, number=1), 0)

    assert book.brokers() == []
    assert book.take(1) == []
    assert book.answered(1, response(sent)) == [written(A)]
    assert rows(book.take(1)) == [(1001, A)]


def test_a_transaction_is_forgotten_with_its_last_marker():
    book = MarkerBook(Leaders(t1=2))
    book.due(OWNER, EPOCH, due(A, B), 0)

    assert book.answered(1, response(book.take(1))) == [written(A)]
    assert len(book) == 1
    assert book.answered(2, response(book.take(2))) == [written(B)]
    assert len(book) == 0


def test_a_refusal_for_now_waits_for_a_release_and_goes_to_the_leader_of_then():
    leaders = Leaders()
    book = MarkerBook(leaders)
    book.due(OWNER, EPOCH, due(A, B), 5)
    answer = response(book.take(1), (B, ErrorCode.NOT_LEADER_OR_FOLLOWER))

    assert book.answered(1, answer) == [written(A)]
    assert [book.needs_release, book.brokers()] == [True, []]
    (waiting,) = book.waiting()
    assert (waiting.partition, waiting.since_ms) == (B, 5)
    assert waiting.why == "broker 1 answers NOT_LEADER_OR_FOLLOWER"
    leaders.brokers["t1"] = 2
    assert book.release() == []
    assert [book.needs_release, book.brokers()] == [False, [2]]
    assert rows(book.take(2)) == [(1000, B)]


def test_an_error_of_a_newer_broker_counts_as_refused_for_now():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)

    assert book.answered(1, response(book.take(1), (A, 9_999))) == []
    assert [each.why for each in book.waiting()] == ["broker 1 answers UNKNOWN_SERVER_ERROR"]


def test_a_row_that_the_answer_lacks_is_sent_again():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)
    book.take(1)

    assert book.answered(1, WriteTxnMarkersResponse(markers=[])) == []
    assert [each.why for each in book.waiting()] == ["broker 1 did not answer for it"]
    book.release()
    assert rows(book.take(1)) == [(1000, A)]


def test_rows_that_were_not_asked_for_are_ignored():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)
    sent = book.take(1)
    book.due(OWNER, EPOCH, due(B, number=1), 0)
    answer = response(sent)
    answer.markers += response([sent[0]]).markers
    answer.markers += response(
        [
            WritableMarker(
                producer_id=7, producer_epoch=0, transaction_result=True, topics=sent[0].topics
            )
        ]
    ).markers

    assert book.answered(1, answer) == [written(A)]
    assert book.answered(9, answer) == []


def test_a_lost_connection_releases_what_was_sent_and_what_was_queued():
    leaders = Leaders()
    book = MarkerBook(leaders)
    book.due(OWNER, EPOCH, due(A), 0)
    book.take(1)
    book.due(OWNER, EPOCH, due(B, number=1), 0)

    book.lost(1)

    assert {each.why for each in book.waiting()} == {"broker 1 cannot be reached"}
    leaders.brokers = {"t0": 2, "t1": 2}
    book.release()
    assert sorted(rows(book.take(2))) == [(1000, A), (1001, B)]


def test_a_partition_without_leader_waits_and_one_that_is_gone_is_done():
    leaders = Leaders(t0=NO_LEADER, t1=None)
    book = MarkerBook(leaders)

    assert book.due(OWNER, EPOCH, due(A, B, C), 0) == [written(B)]
    assert rows(book.take(1)) == [(1000, C)]
    assert {each.partition: each.why for each in book.waiting()} == {
        A: "it has no leader",
        C: "on its way",
    }
    leaders.brokers["t0"] = None
    assert book.release() == [written(A)]


def test_a_refusal_for_good_gives_the_transaction_up():
    book = MarkerBook(Leaders(t2=2))
    book.due(OWNER, EPOCH, due(A, B, C), 0)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    answer = response(book.take(1), (B, fenced))

    assert book.answered(1, answer) == [
        written(A),
        MarkerAnswer(OWNER, key(), frozenset(), (B, fenced)),
    ]
    assert len(book) == 0
    assert book.take(2) == []


def test_the_markers_of_a_lost_coordinator_are_left_out():
    book = MarkerBook(Leaders(t1=2, t2=NO_LEADER))
    book.due(OWNER, EPOCH, due(A, B, C), 0)
    sent = book.take(1)
    book.due("another", EPOCH, due(B, number=1), 0)

    book.forget(OWNER)

    assert book.answered(1, response(sent, (A, ErrorCode.NOT_LEADER_OR_FOLLOWER))) == []
    assert rows(book.take(2)) == [(1001, B)]
    assert book.release() == []
    assert not book.needs_release
    assert [each.key for each in book.waiting()] == [key(1)]


def test_a_lost_connection_holds_nothing_of_a_lost_coordinator():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)
    book.take(1)
    book.forget(OWNER)

    book.lost(1)

    assert not book.needs_release


def test_a_coordinator_that_leads_again_sends_with_its_new_epoch():
    book = MarkerBook(Leaders())
    book.due(OWNER, EPOCH, due(A), 0)
    sent = book.take(1)
    book.forget(OWNER)
    book.due(OWNER, LeaderEpoch(6), due(A), 0)

    assert book.answered(1, response(sent)) == []
    assert [marker.coordinator_epoch for marker in book.take(1)] == [6]


def test_a_request_has_a_bound():
    book = MarkerBook(lambda _: 1)
    partitions = [TopicPartition("t", index) for index in range(ROWS_PER_REQUEST + 1)]
    book.due(OWNER, EPOCH, due(*partitions), 0)

    first = book.take(1)
    book.answered(1, response(first))
    second = book.take(1)

    assert len(rows(first)) == ROWS_PER_REQUEST
    assert len(rows(second)) == 1


@given(st.data())
def test_every_marker_is_written_whatever_happens(data):
    book = MarkerBook(lambda _: data.draw(st.sampled_from([1, 2, NO_LEADER])))
    left: dict[MarkerKey, set[TopicPartition]] = {}
    for number in range(3):
        partitions = data.draw(st.frozensets(st.sampled_from([A, B, C]), min_size=1))
        left[key(number)] = set(partitions)
        book.due(OWNER, EPOCH, due(*partitions, number=number), 0)
    in_flight: dict[int, list[WritableMarker]] = {}
    for _ in range(20):
        broker = data.draw(st.sampled_from([1, 2]))
        match data.draw(st.sampled_from(["take", "answer", "refuse", "lose", "release"])):
            case "take":
                in_flight[broker] = book.take(broker) or in_flight.get(broker, [])
            case "answer":
                for answer in book.answered(broker, response(in_flight.pop(broker, []))):
                    assert answer.written <= left[answer.key]
                    left[answer.key] -= answer.written
            case "refuse":
                refusals = [(each, ErrorCode.NOT_ENOUGH_REPLICAS) for each in (A, B, C)]
                assert book.answered(broker, response(in_flight.pop(broker, []), *refusals)) == []
            case "lose":
                book.lost(broker)
                in_flight.pop(broker, None)
            case "release":
                book.release()
        waiting: dict[MarkerKey, set[TopicPartition]] = {}
        for each in book.waiting():
            waiting.setdefault(each.key, set()).add(each.partition)
        assert waiting == {each: partitions for each, partitions in left.items() if partitions}


def test_markers_without_a_leader_are_counted_until_they_have_one_or_their_coordinator_is_lost():
    leaders = Leaders(t0=NO_LEADER, t1=NO_LEADER, t2=2)
    book = MarkerBook(leaders)
    book.due(OWNER, EPOCH, due(A, B, C), 0)
    book.due("another", EPOCH, due(A, number=1), 0)
    assert book.leaderless == 3
    leaders.brokers["t1"] = 2
    assert book.leaderless == 2
    book.forget("another")
    assert book.leaderless == 1
