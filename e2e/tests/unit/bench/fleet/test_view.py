from logfleet.wire.messages import DescribeTopicPartitionsResponse

from e2e.bench.fleet.view import Progress

ANSWER = DescribeTopicPartitionsResponse
TOPIC = ANSWER.DescribeTopicPartitionsResponseTopic
PARTITION = ANSWER.DescribeTopicPartitionsResponsePartition


def answer(leaders: dict[int, int], *, error_code: int = 0, has_more: bool = False):
    rows = [PARTITION(partition_index=each, leader_id=leader) for each, leader in leaders.items()]
    topic = TOPIC(name="t", error_code=error_code, partitions=rows)
    cursor = ANSWER.Cursor(topic_name="t", partition_index=max(leaders, default=0) + 1)
    return ANSWER(topics=[topic], next_cursor=cursor if has_more else None)


def led_by_two() -> Progress:
    return Progress(lambda partition: partition.leader_id == 2)


def test_a_change_is_done_once_it_was_seen_of_every_partition():
    progress = led_by_two()
    assert not progress.sees(answer({0: 2, 1: 3, 2: 2}))
    assert progress.index == 1
    assert progress.sees(answer({1: 2, 2: 2}))


def test_while_there_is_more_to_be_asked_for_it_is_not_done():
    progress = led_by_two()
    assert not progress.sees(answer({0: 2, 1: 2}, has_more=True))
    assert progress.index == 2


def test_a_topic_that_is_not_there_yet_shows_nothing():
    progress = led_by_two()
    assert not progress.sees(answer({}, error_code=3))
    assert not progress.sees(answer({}))
    assert progress.index == 0
