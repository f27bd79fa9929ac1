import asyncio
import time
import traceback

from e2e.bench.lag.probe import LIMIT_S, Probe, spread, where


def test_times_are_told_in_ms():
    values = [number / 1000 for number in range(1001)]
    assert spread(values[::-1]) == {"p50": 500, "p99": 990, "p99.9": 999, "max": 1000}
    assert spread([]) == {"p50": 0, "p99": 0, "p99.9": 0, "max": 0}


def test_a_stack_is_told_by_its_innermost_frames():
    def inner():
        return traceback.extract_stack()

    told = where(inner()).split(" > ")
    assert len(told) == 5
    assert told[-1].startswith("test_probe.py:")
    assert told[-1].endswith(" inner")


def test_a_step_that_takes_long_is_seen_and_named():
    def sleeps_on_the_loop(probe: Probe) -> None:
        """Until it was seen; a sample of what was late before it makes room for one of this."""
        time.sleep(20 * LIMIT_S)
        while "sleeps_on_the_loop" not in (probe._sampled or ""):
            probe._sampled = None
            time.sleep(LIMIT_S)

    async def looked(probe: Probe) -> None:
        count = len(probe._lag)
        while len(probe._lag) == count:  # noqa: ASYNC110  the probe's own timer is what is awaited
            await asyncio.sleep(0)

    async def main() -> Probe:
        probe = Probe()
        probe.start()
        probe.begin("quiet")
        probe.begin("slow")
        await looked(probe)
        sleeps_on_the_loop(probe)
        await looked(probe)
        probe.begin("")
        return probe

    quiet, slow = asyncio.run(main()).phases
    assert (quiet.name, quiet.over) == ("quiet", 0)
    assert slow.over >= 1
    assert slow.own_ms["max"] >= 15 * LIMIT_S * 1000
    assert any("sleeps_on_the_loop" in step for step in slow.steps)
