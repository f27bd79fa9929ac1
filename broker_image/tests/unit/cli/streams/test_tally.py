import pytest
from logfleet.cli.streams.tally import Tally
from logfleet.client.batches import Written


def test_a_tally_has_the_next_offset_of_each_partition_as_far_as_known() -> None:
    tally = Tally()
    for partition, offset, count in ((0, 5, 3), (1, 0, 1), (0, 4, 1), (2, -1, 2)):
        tally.add(Written("t", partition, offset, 0), count)
    assert tally.records == 7
    assert {str(key): at for key, at in tally.next_offsets.items()} == {"t-0": 6, "t-1": 1}


@pytest.mark.parametrize(
    "records, verbose, is_terminal, line",
    [
        (1234, False, True, "1,234 records written"),
        (1, False, True, "1 record written"),
        (1, False, False, None),
        (2, True, False, "2 records written in 0.0 s; next offsets: t-0 2"),
    ],
)
def test_it_is_reported_on_a_terminal_or_when_wanted_and_after_failures(
    records: int,
    verbose: bool,
    is_terminal: bool,
    line: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
    tally = Tally()
    tally.add(Written("t", 0, records - 1, 0), records)
    with pytest.raises(KeyboardInterrupt), tally.reported("written", verbose=verbose):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ("" if line is None else f"{line}\n")
