import re

import pytest
from logfleet_spark.patterns import PatternError, java_pattern

NAMES = ["flights", "flights.2013", "Flights-old", "flights_9", "a.b", "axb", "zz", "0"]


@pytest.mark.parametrize(
    "java, found",
    [
        ("flights.*", ["flights", "flights.2013", "flights_9"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Qa.b", ["a.b"]),
        (r"^\p{Upper}\p{Lower}+-", ["Flights-old"]),
        (r"^[\p{Digit}_]+$", ["0"]),
        (r"^(?<one>z)\k<one>$", ["zz"]),
        (r"^(?i)FLIGHTS\z", None),
        ("(?i)^FLIGHTS\\z", ["flights"]),
        (r"^a[.\-]b$", ["a.b"]),
        (r"\.\d{4}+$", ["flights.2013"]),
        ("^(?>a|ax)b", []),
        (r"^\x61\u002eb$", ["a.b"]),
        ("^[^a-z]+$", ["0"]),
    ],
)
def test_an_expression_means_what_it_means_in_java(java, found):
    if found is None:  # Java takes flags anywhere
        with pytest.raises(PatternError, match="global flags not at the start"):
            java_pattern(java)
        return
    assert [name for name in NAMES if java_pattern(java).search(name)] == found


def test_classes_are_those_of_ascii():
    assert java_pattern(r"\w\d").flags & re.ASCII


@pytest.mark.parametrize(
    "java, why",
    [
        ("(", "missing"),
        ("[a-z&&[^b]]", "'&&' within a class in brackets"),
        ("[a[bc]]", r"'\[' within a class in brackets"),
        (r"\p{IsGreek}", r"\\p\{IsGreek\}: write the characters in brackets"),
        (r"\Ga", r"\\G has no counterpart"),
        (r"a\R", r"\\R has no counterpart"),
    ],
)
def test_what_python_cannot_say_is_refused_by_its_part(java, why):
    with pytest.raises(PatternError, match=why):
        java_pattern(java)


TOPICS = (
    *("a", "A", "ab", "aab", "orders", "orders-2024", "orders.eu", "ORDERS_eu", "x1y22", "a-b"),
    *("a.b", "a+b", "__consumer_offsets", "0", "Z9", "t-1-t-1", "abab", "-", "."),
)
SAME = (
    *(
        "orders.*",
        "^orders-\\d+$",
        "a|b",
        "[a-c]+",
        "[^a-c]",
        "(a)(b)\\1",
        "a{1,2}b",
        "^a*+b",
        "(?>a+)b",
    ),
    *(r"\Qa.b\E", r"^\Qa+b", r"(?<x>ab)\k<x>", r"^\p{Lower}+$", r"^\p{Lu}", r"\p{Alpha}\p{Digit}"),
    *(
        r"^\P{Alpha}+$",
        r"[\p{Digit}.]",
        r"\Aorders\z",
        r"\w\Z",
        "(?i)orders",
        "(?i:orders)_",
        r"\x61",
    ),
    *(r"^(?!__).*", r"(?<=-)b", r"[\w.-]+", r"a\.b", r"[a\-b]-", "^[a-z&]+$", r"\bb", r"^\pL+$"),
)


@pytest.mark.parametrize("pattern", SAME)
def test_a_pattern_finds_what_java_finds(spark, pattern):
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)
    ours = java_pattern(pattern)
    assert [n for n in TOPICS if ours.search(n)] == [n for n in TOPICS if java.matcher(n).find()]
