import pytest
from logfleet.console.decode import MASKED, row, shown
from logfleet.records.record import Record


@pytest.mark.parametrize(
    "data, form, text",
    [
        (None, "null", ""),
        (b'{"b": 1, "a": [2]}', "json", '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}'),
        (b"12", "json", "12"),
        (b"plain\ttext", "text", "plain\ttext"),
        (b"", "text", ""),
        (b"\x00A\xff", "hex", "000000  00 41 ff" + " " * 41 + ".A."),
        (
            b"a\x1b[31mred",
            "hex",
            "000000  61 1b 5b 33 31 6d 72 65 64" + " " * 23 + "a.[31mred",
        ),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, form: str, text: str) -> None:
    found = shown(data)
    assert (found["form"], found["text"]) == (form, text)
    assert found["size"] == len(data or b"")


def test_a_masked_field_is_not_shown_wherever_lists_lead_to_it() -> None:
    text = shown(b'[{"card": {"no": 1}, "a": 2}, {"card": 3}]', "value", ["value.card", "key.a"])[
        "text"
    ]
    assert text.count(MASKED) == 2
    assert '"no"' not in text
    assert '"a": 2' in text


def test_what_is_no_json_is_hidden_where_fields_are_masked() -> None:
    assert shown(b"card=1", "value", ["value.card"]) == {
        "form": "hidden",
        "size": 6,
        "text": MASKED,
    }
    assert shown(b"card=1", "key", ["value.card"])["text"] == "card=1"


def test_much_nesting_is_shown_as_text() -> None:
    assert shown(b"[" * 100_000)["form"] == "text"


def test_a_row_has_everything_of_the_record() -> None:
    found = row(3, Record(b"k", None, 17, (("h", b"1"),), 5))
    assert (found["partition"], found["offset"], found["timestamp"]) == (3, 5, 17)
    assert found["headers"] == [{"name": "h", "form": "json", "size": 1, "text": "1"}]
