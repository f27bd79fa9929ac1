import io
import json
from pathlib import Path
from tempfile import NamedTemporaryFile

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.cli.streams.decoding import decoder_of

SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "dest", "type": "string"}, {"name": "delay", "type": "int"}],
}
FLIGHT = {"dest": "LAX", "delay": 42}


def avro() -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, FLIGHT)
    return out.getvalue()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "flight.avsc"
    path.write_text(json.dumps(SCHEMA))
    return path


@pytest.mark.parametrize(
    "header", [b"", b"\0\0\0\0\x07", b"\xc3\x01" + bytes(8)], ids=["none", "Confluent", "single"]
)
def test_avro_is_read_by_its_schema_behind_any_usual_header(
    header: bytes, schema: Path, warnings: list[str]
) -> None:
    decoder = decoder_of("avro", schema, warnings.append)
    assert decoder.document(header + avro()) == FLIGHT
    assert decoder.text(header + avro()) == b'{"dest":"LAX","delay":42}'
    assert warnings == []


def test_an_avro_file_brings_its_schema(warnings: list[str]) -> None:
    out = io.BytesIO()
    fastavro.writer(out, SCHEMA, [FLIGHT])
    assert decoder_of("avro", None, warnings.append).document(out.getvalue()) == [FLIGHT]


@pytest.mark.parametrize("data", [b"", b"\x06LAX", avro() + b"\0", b"\0" * 5 + b"\xff", b"Obj\x01"])
def test_what_is_no_avro_is_shown_as_it_is(data: bytes, schema: Path, warnings: list[str]) -> None:
    decoder = decoder_of("avro", schema, warnings.append)
    assert decoder.document(data) is None
    assert decoder.text(data) == data
    assert len(warnings) == 1


def test_without_a_schema_only_avro_files_are_read(warnings: list[str]) -> None:
    assert decoder_of("avro", None, warnings.append).text(avro()) == avro()
    assert "--schema names no schema" in warnings[0]


@given(st.binary(max_size=40), st.sampled_from([b"", b"Obj\x01", b"\0", b"\xc3\x01"]))
def test_any_bytes_are_avro_or_shown_as_they_are(data: bytes, begin: bytes) -> None:
    with NamedTemporaryFile("w") as schema:
        schema.write(json.dumps(SCHEMA))
        schema.flush()
        decoder = decoder_of("avro", Path(schema.name), lambda _: None)
    assert isinstance(decoder.text(begin + data), bytes)
