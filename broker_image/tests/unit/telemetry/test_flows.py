"""Rates and clients of partitions, from looks at counters."""

from logfleet.telemetry.flows import SAMPLES_MAX, Flow, Flows, FlowSample


def look(written: int, read: int = 0, *, epoch: int = 1, **clients: str) -> FlowSample:
    return FlowSample("t", 0, epoch, written, read, clients.get("writer"), clients.get("reader"))


def flows(*looks: FlowSample) -> list[Flow]:
    seen = Flows()
    for number, each in enumerate(looks):
        seen.add_sample("key", 10_000 * number, each)
    return seen.by_traffic()


def test_a_rate_is_what_the_counters_grew_by_in_the_time_between():
    (flow,) = flows(look(0), look(1_000), look(5_000, 2_000))
    assert (flow.bytes_in, flow.bytes_out, flow.rate) == (250.0, 100.0, 350.0)


def test_nothing_is_told_of_one_look_or_of_what_stands_still():
    assert flows(look(5_000)) == []
    assert flows(look(5_000), look(5_000)) == []


def test_old_looks_count_no_more():
    (flow,) = flows(*(look(0) for _ in range(3)), *(look(600 * n) for n in range(SAMPLES_MAX)))
    assert flow.bytes_in == 60.0


def test_another_leader_epoch_begins_anew():
    assert flows(look(9_000), look(10, epoch=2)) == []
    (flow,) = flows(look(9_000), look(10, epoch=2), look(110, epoch=2))
    assert flow.bytes_in == 10.0


def test_whoever_was_seen_most_often_is_named_and_only_for_what_moved():
    told = flows(
        look(0, writer="a", reader="r"),
        look(10, writer="b", reader="r"),
        look(20, writer="b", reader="r"),
    )
    assert (told[0].writer, told[0].reader) == ("b", None)


def test_the_busiest_comes_first_and_what_is_not_led_any_more_is_forgotten():
    seen = Flows()
    for now_ms, factor in ((0, 0), (1_000, 1)):
        seen.add_sample("slow", now_ms, FlowSample("t", 0, 1, 10 * factor, 0, None, None))
        seen.add_sample("fast", now_ms, FlowSample("t", 1, 1, 90 * factor, 0, None, None))
    assert [flow.partition for flow in seen.by_traffic()] == [1, 0]
    seen.keep({"slow"})
    assert [flow.partition for flow in seen.by_traffic()] == [0]
