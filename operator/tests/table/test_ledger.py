"""The ledger's lines in ConfigMaps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.resources.topic import TOPIC_NAME_LENGTH_MAX
from logfleet_operator.topics.ledger import Ledger, LedgerLine, read, shards

from .lives import is_config_map_key

LINE = LedgerLine(uid="1", name="x", policy="Delete", crd="2", cluster="3")
TOPIC_NAMES = st.from_regex(re.compile(r"[-.]{0,4}[a-zA-Z0-9._-]{0,245}"), fullmatch=True).filter(
    lambda name: name not in {"", ".", ".."}
)


@given(st.sets(TOPIC_NAMES, max_size=8))
def test_lines_of_all_legal_names_can_be_written_and_read(topics: set[str]) -> None:
    assert all(len(topic) <= TOPIC_NAME_LENGTH_MAX for topic in topics)
    lines: Ledger = dict.fromkeys(topics, LINE)
    written = shards("fleet", lines)
    keys = [key for config_map in written for key in config_map["data"]]
    assert len(keys) == len(topics)
    assert all(is_config_map_key(key) for key in keys)
    assert read("fleet", written) == lines


@pytest.mark.parametrize(
    "topic, key",
    [
        ("flights", "flights"),
        ("-", "-"),
        (".x", ".x"),
        ("-.x", "-.x"),
        ("x..", "x.."),
        ("-x..", "-x.."),
        ("..x", "-..x"),
        ("-..x", "--..x"),
        ("...", "-..."),
    ],
)
def test_the_key_of_a_topic_is_its_name_where_kubernetes_takes_it(topic: str, key: str) -> None:
    assert [list(each["data"]) for each in shards("fleet", {topic: LINE}) if each["data"]] == [
        [key]
    ]
