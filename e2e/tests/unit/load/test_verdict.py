"""The verdict of `make failover`, on histories made by hand."""

from e2e.load.fleet.__main__ import of_defaults
from e2e.load.fleet.replicas import batches_of, differences
from e2e.load.schedule import due
from e2e.load.verdict import (
    Acknowledged,
    Fault,
    History,
    gaps,
    judge,
    percentile,
    read_history,
    read_java_history,
)


def history(*rows: tuple[str, int, int]) -> History:
    return History([Acknowledged(*row, float(n)) for n, row in enumerate(rows)], [])


def test_what_was_acknowledged_and_is_there_once_and_in_order_is_clean():
    verdict = judge([history(("a.0", 0, 0), ("a.1", 0, 1))], {0: {0: "a.0", 1: "a.1", 2: "a.2"}})
    assert verdict.is_clean


def test_an_acknowledged_record_that_is_not_where_it_was_said_to_be_is_lost():
    verdict = judge([history(("a.0", 0, 0), ("a.1", 0, 1))], {0: {0: "a.1"}})
    assert len(verdict.lost) == 2


def test_what_was_acknowledged_without_an_offset_has_to_be_somewhere():
    logs = {0: {0: "a.0"}, 1: {0: "a.1"}}
    assert judge([history(("a.0", 0, -1))], logs).is_clean
    assert len(judge([history(("a.1", 0, -1), ("a.2", 0, -1))], logs).lost) == 2


def test_a_value_at_two_offsets_is_duplicated():
    verdict = judge([], {0: {0: "a.0", 5: "a.0"}})
    assert len(verdict.duplicated) == 1
    assert not verdict.reordered


def test_an_earlier_record_of_the_same_producer_behind_a_later_one_is_reordered():
    assert len(judge([], {0: {0: "a.1", 1: "b.0", 2: "a.0"}}).reordered) == 1
    assert judge([], {0: {0: "a.1"}, 1: {0: "a.0"}}).is_clean


def test_lines_of_both_kinds_of_producers_are_read():
    found = read_history(
        "probe", "%3|warning of a library\n3 1 7 2000000000 250000000\n4 failed TIMED OUT\n"
    )
    assert found == History(
        [Acknowledged("probe.3", 1, 7, 2.0, 0.25)], ["probe.4: 4 failed TIMED OUT"]
    )
    assert (
        read_history("probe", "3 1 7 2000000000 250000000\n4 1 8").acknowledged
        == found.acknowledged
    )
    said = (
        '{"timestamp":5000,"name":"producer_send_success","value":"0.9","partition":2,"offset":4}'
    )
    java = read_java_history(f"starting\n{said}\n", wall_to_monotonic_s=-3.0)
    assert java.acknowledged == [Acknowledged("0.9", 2, 4, 2.0)]


def test_the_longest_gap_that_reaches_into_a_fault_counts():
    times = [0.0, 1.0, 1.5, 4.0, 4.1]
    rows = History([Acknowledged("a.0", 0, 0, at_s) for at_s in times], [])
    before, amid = Fault("x", "1", 0.5, 1.2, frozenset()), Fault("x", "1", 2.0, 5.0, frozenset())
    assert [gap.seconds for gap in gaps(rows, [before, amid])] == [1.0, 2.5]


def test_percentiles_are_of_the_nearest_rank():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.99) == 2.0


def test_a_round_takes_of_each_kind_what_is_missing():
    wanted = {"a": 2, "b": 1}
    assert sorted(due({"faults": {"a": 1}}, wanted)) == ["a", "b"]
    assert due({"faults": {"a": 2, "b": 1}}, wanted) == []


def test_clients_with_default_timeouts_are_shown_together_without_the_probe():
    seconds = {"java": {"x": [1.0], "y": [2.0]}, "confluent": {"x": [3.0]}, "probe": {"x": [9.0]}}
    assert of_defaults(seconds) == {"x": [1.0, 3.0], "y": [2.0]}


def dump(*rows: tuple[int, int], name: str = "t-0") -> str:
    """As Kafka's tool says it; rows: base offset and checksum."""
    lines = [f"Dumping /data/{name}/00000000000000000000.log", "Log starting offset: 0"]
    for at, crc in rows:
        lines.append(
            f"baseOffset: {at} lastOffset: {at} count: 1 position: {7 * at} crc: {crc} isvalid: true"
        )
    return "\n".join(lines)


def test_replicas_are_alike_if_they_hold_the_same_batches_wherever_they_lie():
    moved = dump((0, 5), (1, 6)).replace("position: 7", "position: 9")
    dumps = {"1": batches_of(dump((0, 5), (1, 6))), "2": batches_of(moved)}
    assert differences(dumps, {"t-0": 2}) == []


def test_replicas_may_differ_above_the_high_watermark_only():
    dumps = {"1": batches_of(dump((0, 5), (1, 6))), "2": batches_of(dump((0, 5), (1, 7)))}
    assert differences(dumps, {"t-0": 1}) == []
    (said,) = differences(dumps, {"t-0": 2})
    assert said.startswith("t-0@1: 1 has baseOffset: 1")


def test_a_replica_without_what_is_committed_is_told():
    dumps = {"1": batches_of(dump((0, 5), (1, 6))), "2": batches_of(dump((0, 5)))}
    assert len(differences(dumps, {"t-0": 2})) == 1
    assert len(differences({"1": {}, "2": {}}, {"t-0": 2})) == 1
