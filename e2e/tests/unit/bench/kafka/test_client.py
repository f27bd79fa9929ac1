import msgspec
import pytest

from e2e.bench.kafka.client import figures, parse

WRITE = (
    '{"records": 1000, "requests": 20, "wall_s": 0.5, "cpu_s": 0.001, "beside_s": 0.002, "user_s": 0.03,'
    ' "system_s": 0.01, "librdkafka": "2.0.2"'
)


def test_what_the_client_prints_becomes_figures():
    found = figures(parse(WRITE + "}"))
    assert found == pytest.approx(
        {
            "cpu_us_per_record": 1,
            "cpu_us_per_request": 50,
            "whole_cpu_us_per_record": 3,
            "whole_cpu_us_per_request": 150,
            "records_per_s": 2000,
            "records_per_request": 50,
            "kernel_share": 0.25,
        }
    )


def test_latencies_are_figures_where_there_are_any():
    found = figures(parse(WRITE + ', "p50_us": 1, "p99_us": 2, "p999_us": 3, "max_us": 4}'))
    assert [found[key] for key in ("p50_us", "p99_us", "p999_us", "max_us")] == [1, 2, 3, 4]


def test_no_clock_tick_of_processor_time_is_no_share_of_the_kernel():
    text = WRITE.replace("0.03", "0").replace('"system_s": 0.01', '"system_s": 0')
    assert figures(parse(text + "}"))["kernel_share"] == 0


@pytest.mark.parametrize("text", ["", "{}", WRITE, WRITE.replace("1000", '"many"') + "}"])
def test_what_is_no_measurement_is_refused(text):
    with pytest.raises(msgspec.DecodeError):
        parse(text)
