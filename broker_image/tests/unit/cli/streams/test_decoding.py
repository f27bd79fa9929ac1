import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.cli.streams.decoding import DECODERS, decoder_of

FLIGHT = {"dest": "LAX", "delay": 42}


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.mark.parametrize(
    "name, data, document, text",
    [
        ("json", b'{"a": 1}', {"a": 1}, b'{"a": 1}'),
        ("json", b'"a"', "a", b'"a"'),
        ("msgpack", msgspec.msgpack.encode(FLIGHT), FLIGHT, b'{"dest":"LAX","delay":42}'),
        ("msgpack", msgspec.msgpack.encode("a"), "a", b"a"),
        ("hex", b"a\xff", "61ff", b"61ff"),
        ("auto", b'{"a": 1}', {"a": 1}, b'{"a": 1}'),
        ("auto", "größer".encode(), "größer", "größer".encode()),
        ("auto", b"a\tb\r\n", "a\tb\r\n", b"a\tb\r\n"),
        ("auto", msgspec.msgpack.encode(FLIGHT), FLIGHT, b'{"dest":"LAX","delay":42}'),
        ("auto", b"\x01\x02", "0102", b"0102"),
        ("auto", b"\xff\xfe", "fffe", b"fffe"),
        ("auto", b"\xc1", "c1", b"c1"),
    ],
)
def test_a_value_is_read_as_a_document(
    name: str, data: bytes, document: object, text: bytes, warnings: list[str]
) -> None:
    decoder = decoder_of(name, None, warnings.append)
    assert decoder.document(data) == document
    assert decoder.text(data) == text
    assert json.loads(bytes(decoder.json(data))) == document
    assert warnings == []


@pytest.mark.parametrize("name", ["json", "msgpack"])
def test_what_is_no_document_is_reported_once(name: str, warnings: list[str]) -> None:
    decoder = decoder_of(name, None, warnings.append)
    for data in (b"\xc1", b"\xff\xff"):
        assert decoder.document(data) is None
        assert decoder.text(data) == data
    assert json.loads(bytes(decoder.json(b"\xc1"))) == {"base64": "wQ=="}
    assert json.loads(bytes(decoder.json(b"\xff\xff"))) == {"base64": "//8="}
    assert name == "msgpack" or json.loads(bytes(decoder.json(b"{"))) == "{"
    (line,) = warnings
    assert line.startswith(f"values that are no {name} are shown as they are; the first: ")


@given(st.sampled_from([name for name in DECODERS if name != "avro"]), st.binary(max_size=20))
def test_any_bytes_are_shown(name: str, data: bytes) -> None:
    decoder = decoder_of(name, None, lambda _: None)
    decoder.document(data)
    assert isinstance(decoder.text(data), bytes)
    json.loads(bytes(decoder.json(data)))
