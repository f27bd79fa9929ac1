"""The pages for users of Spark say what the code does."""

import re
import shlex

import pytest
from logfleet_spark.jobs import dlq_router, table_to_topic, topic_to_table, window_counts
from logfleet_spark.jobs.metrics import COUNTERS, GAUGES

from e2e.harness.images import ROOT
from e2e.pages.spark_options import OPTIONS, Option, taken

SPARK = ROOT / "spark-on-k8s"
DOCS = ROOT / "docs" / "spark"
PAGES = {path.name: path.read_text() for path in DOCS.glob("*.md")}
JOBS = {
    "window_counts": window_counts,
    "dlq_router": dlq_router,
    "topic_to_table": topic_to_table,
    "table_to_topic": table_to_topic,
}


def commands(page: str):
    """(job, words) of every call of submit.sh in a page."""
    for block in re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if "submit.sh" in line and "..." not in line:
                words = shlex.split(line)
                at = next(n for n, word in enumerate(words) if word.endswith("submit.sh"))
                assert words[at + 2] == "--"
                yield words[at + 1], words[at + 3 :]


def test_the_options_page_is_what_the_source_says() -> None:
    assert taken(OPTIONS[1], "batch") == "yes"
    wrong = Option("subscribed", "t", ("batch",), "")
    assert taken(wrong, "batch").startswith("no: subscribed: no such option")


@pytest.mark.parametrize("job", JOBS)
def test_a_jobs_page_calls_it_as_it_wants_to_be_called(job: str) -> None:
    calls = list(commands(f"{job}.md"))
    assert {name for name, _ in calls} == {job}
    for _, words in calls:
        JOBS[job].parse_settings(words)


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_options_and_files_that_there_are(page: str) -> None:
    known = {f"--{name}" for job in JOBS.values() for name in job.make_parser().options} | {
        "--settings",
        "--master",
        "--set",
        "--set-file",
        "--packages",
        "--help",
        "--conf",
        # of `logfleet consume`
        "--isolation",
        "--offset",
        "--exit-at-end",
    }
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGES[page]))
    assert named <= known, named - known
    for target in re.findall(r"\]\((?!https:)([^)#]+)\)", PAGES[page]):
        assert (DOCS / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_in_plain_words(page: str) -> None:
    """Reports report, checks check; the words below stood for either."""
    found = re.findall(r"\b(?:said|told|tells?|looks?|anew|whoever)\b", PAGES[page], re.IGNORECASE)
    assert found == []


def test_the_page_names_every_metric_of_the_jobs() -> None:
    for name in (*COUNTERS, *GAUGES):
        assert f"`{name}`" in PAGES["index.md"], name


def test_every_job_has_its_page_and_its_file() -> None:
    assert {path.stem for path in (SPARK / "jobs").glob("*.py")} == set(JOBS)
    assert all(f"({job}.md)" in PAGES["index.md"] for job in JOBS)
