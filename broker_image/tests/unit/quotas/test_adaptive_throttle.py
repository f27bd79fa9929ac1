"""A throttle yields while producers are slow, and comes back."""

from logfleet.quotas.adaptive_throttle import LEAST, AdaptiveThrottle


def calm(p99_s: float = 0.002) -> AdaptiveThrottle:
    rule = AdaptiveThrottle()
    for _ in range(20):
        rule.adapt(p99_s, copied=False)
    return rule


def test_it_yields_while_producers_are_slower_than_without_copying_and_comes_back():
    rule = calm()
    rule.adapt(0.1, copied=True)
    assert rule.factor < 0.7
    for _ in range(20):
        rule.adapt(0.1, copied=True)
    assert rule.factor == LEAST, "a move always goes on"
    for _ in range(9):
        rule.adapt(0.003, copied=True)
    assert rule.factor == 1.0


def test_a_little_more_than_very_little_is_no_reason():
    rule = calm(0.001)
    rule.adapt(0.01, copied=True)
    assert rule.factor == 1.0
    rule = calm(0.1)
    rule.adapt(0.19, copied=True)
    assert rule.factor == 1.0, "they were slow before"


def test_what_is_calm_is_learnt_only_while_nothing_is_copied():
    rule = calm()
    for _ in range(50):
        rule.adapt(0.1, copied=True)
    assert rule.calm_s == 0.002
    rule.adapt(0.1, copied=False)
    assert rule.factor == 1.0
    assert rule.calm_s > 0.002


def test_without_producers_it_does_not_yield():
    rule = AdaptiveThrottle()
    rule.adapt(1.0, copied=True)
    assert rule.factor == 1.0, "nobody knows what they had before"
    rule = calm()
    rule.adapt(0.1, copied=True)
    rule.adapt(None, copied=True)
    rule.adapt(None, copied=True)
    rule.adapt(None, copied=True)
    rule.adapt(None, copied=True)
    assert rule.factor == 1.0
