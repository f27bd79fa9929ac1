"""A fixed share of `make fuzz`: hostile requests and batches to a broker's dispatcher, and to a broker over TCP."""

from pathlib import Path

import pytest

from e2e.fuzz.in_process import fuzz_in_process
from e2e.fuzz.over_tcp import crowds_over_tcp, fuzz_over_tcp
from e2e.harness.processes import Rig

EXAMPLES = 4000


def test_no_request_brings_a_handler_down_or_takes_too_much(tmp_path: Path) -> None:
    tally = fuzz_in_process(tmp_path, seed=1, examples=EXAMPLES)
    print(dict(tally.outcomes), len(tally.apis))
    assert tally.faults == []
    assert tally.inputs == EXAMPLES


def test_a_broker_outlives_hostile_peers_and_stays_small(rig: Rig) -> None:
    result = fuzz_over_tcp(rig, seed=2, examples=EXAMPLES)
    print(dict(result.tally.outcomes), result.rss_growth_bytes)
    assert result.tally.faults == []
    assert result.tally.inputs == EXAMPLES


@pytest.mark.full
def test_frames_full_of_tiny_elements_take_bounded_memory_and_time(rig: Rig) -> None:
    result = crowds_over_tcp(rig)
    print(dict(result.tally.outcomes), result.rss_growth_bytes)
    assert result.tally.faults == []
    assert result.tally.outcomes["crowds answered"] > 100
    assert result.tally.outcomes["crowds closed"] > 50
