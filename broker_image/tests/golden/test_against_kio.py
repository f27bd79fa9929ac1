"""Every (message, version) pair that both kio and our table have is byte-identical, written and read."""

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.schema import load_table

from broker_image.tests.golden.kio_pairs import Drawer, kio_class

PAIRS = {
    name: list(range(message.versions[0], message.versions[1] + 1))
    for name, message in load_table().items()
}


@pytest.mark.parametrize("name", PAIRS)
@settings(
    max_examples=5,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_bytes_are_those_of_kio_and_read_back(name: str, data: st.DataObject) -> None:
    for version in PAIRS[name]:
        kio = kio_class(name, version)
        ours, theirs = Drawer(data, name, version).message(kio)
        written = encode_bytes(ours, version)
        read, end = decode(type(ours), version, written)
        assert end == len(written)
        assert read == ours
        if kio is not None:
            with io.BytesIO() as buffer:
                entity_writer(kio)(buffer, theirs)
                assert written == buffer.getvalue()
            assert entity_reader(kio)(written, 0)[0] == theirs
