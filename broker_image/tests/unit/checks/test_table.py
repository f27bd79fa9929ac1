"""All checks together: codes, order, choice, what cannot be checked, and the page."""

import pytest
from logfleet.checks import run
from logfleet.checks.docs import check_docs, explained
from logfleet.checks.finding import Check, Finding, Severity, counted, listed
from logfleet.checks.snapshot import Broker, Gap, Part
from logfleet.checks.table import CHECKS, chosen, counts, headline, skipped

from broker_image.tests.unit.checks.fleets import broker, fleet, group, partition, topic

SINGLE = topic("single", partition(replicas=(1,)))
STRICT = topic("strict", config={"min.insync.replicas": "3"})


def test_codes_are_unique_and_in_order() -> None:
    codes = [each.code for each in CHECKS]
    assert codes == sorted(set(codes))


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.code)
def test_every_check_has_a_title_and_names_what_to_do(check: Check) -> None:
    assert check.title
    assert not check.title.endswith(".")
    assert check.text.count("\n\n") == 1, "what it means, and what to do"


def test_a_healthy_fleet_has_no_findings() -> None:
    assert run(fleet()) == []
    assert headline([]) == "all is well"
    assert counts([]) == "nothing found"


def test_nothing_is_found_where_nothing_is_known() -> None:
    blind = fleet(
        topic(config={}), brokers=tuple(Broker(each, zone="abc"[each - 1]) for each in (1, 2, 3))
    )
    assert run(blind, chosen(["LF4"])) == []


def test_the_worst_is_first_then_the_code_then_the_subject() -> None:
    found = run(fleet(SINGLE, STRICT, topic("a", partition(replicas=(2,)))))
    assert [(each.code, each.subject) for each in found] == [
        ("LF103", "strict"),
        ("LF201", "a"),
        ("LF201", "single"),
    ]
    assert counts(found) == "1 error, 2 warnings"
    assert headline(found) == f"{found[0]} (and 2 findings more)"


def test_hints_do_not_change_that_all_is_well() -> None:
    hint = Finding("LF110", Severity.HINT, "fleet", "1 broker", "")
    warning = Finding("LF201", Severity.WARNING, "t", "one replica", "")
    assert headline([hint]) == "all is well, with 1 hint"
    assert headline([warning, hint]) == "t: one replica"


def test_checks_are_chosen_by_code_and_by_beginning() -> None:
    assert chosen() == list(CHECKS)
    assert [each.code for each in chosen(["LF101", "LF5"], ["LF502"])] == [
        "LF101",
        "LF501",
        "LF503",
    ]
    assert all(not each.code.startswith("LF1") for each in chosen(ignore=["LF1"]))
    for wrong in ("LF9", "", "103"):
        with pytest.raises(ValueError, match=f"no code begins with '{wrong}'; they are LF101 to"):
            chosen([wrong])


def test_what_could_not_be_asked_is_not_checked() -> None:
    idle = group("idle", state="Empty", members=(), committed={("orders", 0): 0})
    gaps = (Gap(Part.GROUPS, "no coordinator"), Gap(Part.DISKS, "broker 3 is down", 3))
    unasked = fleet(groups=(idle,), gaps=gaps)
    assert [each.code for each in run(fleet(groups=(idle,)))] == ["LF301"]
    assert run(unasked) == []
    missing = skipped(unasked)
    assert {each.reason for each in missing} == {"no coordinator"}
    assert [each.check.code for each in missing] == [
        "LF301",
        "LF302",
        "LF303",
        "LF304",
        "LF305",
        "LF306",
    ]


def test_disks_of_the_brokers_that_answer_are_checked() -> None:
    gaps = (Gap(Part.DISKS, "it is down", 3),)
    some = fleet(brokers=(broker(1), broker(2), broker(3, directories=None)), gaps=gaps)
    assert skipped(some) == []


def test_names_in_sentences() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert [counted(each, "topic") for each in (1, 2, 1000)] == [
        "1 topic",
        "2 topics",
        "1,000 topics",
    ]


def test_the_page_is_what_the_table_makes() -> None:
    page = check_docs()
    assert all(f"\n### {each.code}\n" in page and explained(each) in page for each in CHECKS)
