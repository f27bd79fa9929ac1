"""Whether some Topics are looked at, or all."""

from logfleet_operator.topics.pending import FEW, Pending


def test_few_that_changed_are_looked_at_by_themselves_once():
    pending = Pending()
    pending.change("a")
    pending.change("b")
    assert pending.take(1.0) == frozenset({"a", "b"})
    assert pending.take(1.0) is None, "whoever asks without a change means all"


def test_all_are_looked_at_when_they_are_due_and_what_changed_with_them():
    pending = Pending()
    pending.all_due(5.0)
    pending.all_due(9.0)
    pending.change("a")
    assert pending.take(4.0) == frozenset({"a"})
    assert pending.all_at == 5.0, "the few have not done that"
    pending.change("b")
    assert pending.take(5.0) is None
    assert pending.all_at is None


def test_of_many_that_changed_all_are_looked_at():
    pending = Pending()
    for number in range(FEW + 1):
        pending.change(str(number))
    assert pending.take(0.0) is None
