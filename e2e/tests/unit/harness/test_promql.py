import pytest

from e2e.harness.promql import named


def test_an_expression_names_series_and_labels():
    said = named(
        'histogram_quantile(0.9, sum by (api, le) (rate(logfleet_x_bucket{a="b", c=~"d|e"}[5m])))'
        ' > on (pod) process_y{f!="g"}'
    )
    assert said.series == {"logfleet_x_bucket", "process_y"}
    assert said.matched == {"logfleet_x_bucket": {"a", "c"}, "process_y": {"f"}}
    assert said.grouped == {"api", "le"}


@pytest.mark.parametrize("expression", ["sum(logfleet_x)", "1", 'logfleet_x{a="b"} / logfleet_y'])
def test_a_metric_of_every_cluster_is_refused(expression):
    with pytest.raises(ValueError, match="without a selector"):
        named(expression)
