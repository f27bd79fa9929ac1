"""Every (message, version) pair that both kio and our table have is byte-identical, written and read."""

import ast
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from logfleet.wire.codec import decode, encode_bytes
from logfleet.wire.schema import load_table

from broker_image.tests.golden import not_in_kio
from broker_image.tests.golden.kio_pairs import Drawer, kio_class

ROOT = Path(__file__).parents[3]
PAIRS = [
    (name, version)
    for name, message in load_table().items()
    for version in range(message.versions[0], message.versions[1] + 1)
]


@pytest.mark.parametrize("name, version", PAIRS)
@settings(
    max_examples=3,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_bytes_are_those_of_kio_and_read_back(name: str, version: int, data: st.DataObject) -> None:
    kio = kio_class(name, version)
    assert (kio is None) == ((name, version) in not_in_kio.CHECKS)
    for full in (False, True):
        ours, theirs = Drawer(data, name, version, full=full).message(kio)
        written = encode_bytes(ours, version)
        read, end = decode(type(ours), version, written)
        assert end == len(written)
        assert read == ours
        if kio is not None:
            with io.BytesIO() as buffer:
                entity_writer(kio)(buffer, theirs)
                assert written == buffer.getvalue()
            assert entity_reader(kio)(written, 0)[0] == theirs


def test_whatever_kio_lacks_names_a_check_that_exists() -> None:
    assert set(not_in_kio.CHECKS) <= set(PAIRS)
    for pair, checks in not_in_kio.CHECKS.items():
        assert checks, pair
        for check in checks:
            file, _, function = check.partition("::")
            tree = ast.parse((ROOT / file).read_text())
            assert function in {
                node.name for node in tree.body if isinstance(node, ast.FunctionDef)
            }, check
