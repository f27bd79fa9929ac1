import pytest
from logfleet.cli.offsets import Place, parse_place
from logfleet.client.offsets import OffsetSpec


@pytest.mark.parametrize(
    "text, place",
    [
        ("beginning", Place(spec=OffsetSpec.EARLIEST)),
        ("latest", Place(spec=OffsetSpec.LATEST)),
        ("0", Place(offset=0)),
        ("-0", Place(last=0)),
        ("-15", Place(last=15)),
        ("@1356998400000", Place(time_ms=1_356_998_400_000)),
        ("@2013-01-01T00:00:00Z", Place(time_ms=1_356_998_400_000)),
        ("@2013-01-01T01:00:00.5+01:00", Place(time_ms=1_356_998_400_500)),
        ("@1970-01-01T00:00:00Z", Place(time_ms=0)),
    ],
)
def test_the_words_for_a_place(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "write beginning, end"),
        ("start", "write beginning, end"),
        ("--1", "write beginning, end"),
        ("1.5", "write beginning, end"),
        ("²", "write beginning, end"),
        ("9" * 20, "there are none so large"),
        ("@" + "9" * 20, "there are none so large"),
        ("@", "write so long ago as 10m"),
        ("@soon", "write so long ago as 10m"),
        ("@1970-01-01T00:00:00+01:00", "is before 1970"),
    ],
)
def test_what_is_no_place(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_place(text)
