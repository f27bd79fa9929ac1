"""Patterns match what `re` matches, in bounded time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logfleet.transactions.patterns import DEPTH_MAX, LENGTH_MAX, BadPattern, Pattern

EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\.", "", "-"]),
    lambda inner: (
        st.tuples(inner, inner).map("".join)
        | st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})")
        | st.tuples(
            inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{1,}", "{0}", "*?"])
        ).map(lambda both: f"(?:{both[0]}){both[1]}")
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.lists(st.text("ab1.-", max_size=6), max_size=20))
def test_it_matches_what_re_matches(expression, texts):
    pattern = Pattern(expression)

    for text in texts:
        assert pattern.matches(text) == (re.fullmatch(expression, text) is not None), text


@pytest.mark.parametrize(
    "expression,text",
    [
        ("^orders-[0-9]$", "orders-7"),
        (r"price\$", "price$"),
        ("[]a]+", "]a"),
        (r"[\]-]x", "-x"),
        ("a{2,3}?b", "aaab"),
        ("", ""),
    ],
)
def test_common_forms_are_known(expression, text):
    assert Pattern(expression).matches(text)
    assert not Pattern(expression).matches(text + "!")


@pytest.mark.parametrize(
    "expression",
    [
        "[",
        "[z-a]",
        "(a",
        "a)",
        "*",
        "a**",
        "a{2,1}",
        "a{251}",
        "(a{100}){100}",
        "((){200}){200}",
        "(?i)a",
        "(?=a)",
        r"(a)\1",
        r"\bb",
        "a^b",
        "a$b",
        "\\",
        "{",
        "(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1),
        "a" * (LENGTH_MAX + 1),
    ],
)
def test_other_expressions_are_refused(expression):
    with pytest.raises(BadPattern):
        Pattern(expression)


@pytest.mark.parametrize(
    "expression", ["(a+)+", "(a|a)*b", "(a?){60}a{60}", "(.*.*)*x", "((a*)*)*b"]
)
def test_a_hostile_expression_takes_a_step_per_character(expression):
    assert not Pattern(expression).matches("a" * 10_000 + "!")


def test_what_is_remembered_of_matches_has_a_bound():
    pattern = Pattern(".*" + ".?" * 20)
    characters = [chr(number) for number in range(256, 2_500)]

    assert pattern.matches("".join(characters))
    assert pattern.matches("".join(reversed(characters)))
