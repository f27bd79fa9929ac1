"""The project's shape, checked like any other rule (CONTRIBUTING.md says why each one)."""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 500
FOLDER_MODULES_MAX = 25
SOURCE_TREES = ("broker_image/src/", "operator/src/", "spark-on-k8s/src/")
BANNED_NAMES = {
    "utils.py",
    "util.py",
    "helpers.py",
    "helper.py",
    "common.py",
    "misc.py",
    "manager.py",
}

# docs/internals/words.md: told, say, anew and their kin are not used in names; report, message, again are.
UNUSED_WORDS = {"told", "tell", "tells", "said", "say", "says", "anew", "whoever", "heard"}

# A longer file or function needs a reason here: path or "path::function" -> why it is better whole.
EXCEPTIONS: dict[str, str] = {
    "broker_image/src/logfleet/telemetry/table.py": "one table, a row per metric, in the order of docs/reference/metrics.md",
}


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [path for name in sorted(set(listed)) if (path := ROOT / name).exists()]


PYTHON = tracked("*.py")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def module_of(name: str) -> str:
    """The module that a file is, by the name that it is imported by; of a folder the package."""
    for tree in SOURCE_TREES:
        name = name.removeprefix(tree)
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """What each module imports of the others, wherever in it: for type checkers only and within functions as well.

    A submodule stands for itself, not for the package that it is in. sources: texts by file name.
    """
    graph: dict[str, set[str]] = {module_of(name): set() for name in sources}
    for name, text in sources.items():
        package = module_of(name.rpartition("/")[0])
        imported = graph[module_of(name)]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = resolve_name("." * node.level + (node.module or ""), package)
                inner = {f"{base}.{alias.name}" for alias in node.names}
                imported.update(each if each in graph else base for each in inner)
        imported.intersection_update(graph)
    return graph


def test_there_is_something_to_check() -> None:
    assert len(PYTHON) > 5


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_modules_and_functions_stay_small(path: Path) -> None:
    name = name_of(path)
    lines = len(path.read_text().splitlines())
    too_long = []
    if lines > MODULE_LINES_MAX and name not in EXCEPTIONS:
        too_long.append(f"{name} has {lines} lines; split it by noun at {MODULE_LINES_MAX}")
    for function in functions(path):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX and f"{name}::{function.name}" not in EXCEPTIONS:
            too_long.append(
                f"{name}::{function.name} has {length} lines (max {FUNCTION_LINES_MAX})"
            )
    assert not too_long, "\n".join(too_long)


def test_no_drawer_for_everything() -> None:
    assert [name_of(path) for path in PYTHON if path.name in BANNED_NAMES] == []


def test_no_folder_holds_too_many_modules() -> None:
    """Of sources and end-to-end tests; unit tests mirror modules, and have some more of each."""
    trees = (*SOURCE_TREES, "e2e/")
    modules = [name for path in PYTHON if (name := name_of(path)).startswith(trees)]
    counts = Counter(name.rpartition("/")[0] for name in modules if "__init__" not in name)
    assert counts
    assert {folder: n for folder, n in counts.items() if n > FOLDER_MODULES_MAX} == {}


def test_whatever_a_module_imports_is_seen() -> None:
    graph = import_graph(
        {
            "e2e/room/__init__.py": "",
            "e2e/room/typed.py": "if TYPE_CHECKING:\n    from e2e.room.late import Late\n",
            "e2e/room/late.py": "def run():\n    from e2e.room import typed, lazy\n",
            "e2e/room/lazy.py": "import os, e2e.room.late\nfrom . import NAME\n",
            "operator/src/logfleet_operator/plan.py": "from e2e.room.lazy import x, y",
        }
    )
    assert graph == {
        "e2e.room": set(),
        "e2e.room.typed": {"e2e.room.late"},
        "e2e.room.late": {"e2e.room.typed", "e2e.room.lazy"},
        "e2e.room.lazy": {"e2e.room.late", "e2e.room"},
        "logfleet_operator.plan": {"e2e.room.lazy"},
    }


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = import_graph({name_of(path): path.read_text() for path in PYTHON})
    assert sum(map(len, graph.values())) > len(graph)
    TopologicalSorter(graph).prepare()  # a CycleError names the modules of a circle in order


HISTORY = ROOT / "docs" / "history"
PAGES = [
    path for path in tracked("*.md") if path.name != "CHANGELOG.md" and HISTORY not in path.parents
]
GENERATED = {"checks.md", "configs.md", "metrics.md"}
"""Their texts are the code's."""
UNPLAIN = re.compile(
    r"\b(?:told|tells?|said|anew|whoever|heard|looks?|noted?|notes)\b", re.IGNORECASE
)
DOCS = ROOT / "docs"
INTERNALS = DOCS / "internals"
ARCHITECTURE = INTERNALS / "architecture.md"
ROOM_PAGES = [
    ARCHITECTURE,
    INTERNALS / "invariants.md",
    INTERNALS / "reconcile.md",
    INTERNALS / "words.md",
    *tracked("docs/internals/rooms/*.md", "docs/internals/adr/*.md"),
]
NOT_MODULES = {"metadata.version"}
"""A feature of Kafka's."""
PACKAGES = {module_of(name_of(path)) for path in PYTHON if path.name == "__init__.py"}


def contract(name: str) -> dict[str, list[str]]:
    """The first contract of import-linter whose name begins so."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    found: dict[str, list[str]] = next(c for c in contracts if c["name"].startswith(name))
    return found


def test_the_architecture_has_all_packages_and_says_which_are_pure() -> None:
    rooms = {name for name in PACKAGES if re.fullmatch(r"logfleet\.(node\.)?\w+", name)}
    rows = re.findall(
        r"^\| `(logfleet\.[\w.]+)` \| (\w+) \|", ARCHITECTURE.read_text(), re.MULTILINE
    )
    assert {name for name, _ in rows} == rooms
    pure = {name for name, kind in rows if kind == "PURE"}
    assert pure == set(contract("Pure packages")["source_modules"]) & rooms


def test_the_architecture_has_the_layers_that_import_linter_checks() -> None:
    drawn = re.findall(
        r"^```\n(__main__\n.*?)```", ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL
    )
    layers = [layer.replace("logfleet.", "") for layer in contract("Layers")["layers"]]
    assert [block.splitlines() for block in drawn] == [layers]


@pytest.mark.parametrize("page", ROOM_PAGES, ids=name_of)
def test_pages_about_the_code_name_modules_that_are_there(page: Path) -> None:
    modules = {module_of(name_of(path)) for path in PYTHON}
    named = re.findall(r"`(?:logfleet\.)?([a-z_]+\.[a-z_.]+)`", page.read_text())
    missing = set()
    for name in set(named) - NOT_MODULES:
        for root in ("logfleet", "logfleet_operator"):
            of_root = f"{root}.{name}"
            if ".".join(of_root.split(".")[:2]) in PACKAGES and of_root not in modules:
                missing.add(name)
    assert missing == set()


def test_modules_that_call_themselves_pure_are_those_that_import_linter_checks() -> None:
    """Of the operator and the Spark source, whose packages have both kinds."""
    calling = {
        module_of(name_of(path))
        for path in PYTHON
        if name_of(path).startswith(SOURCE_TREES[1:])
        and re.search(r"\bPURE\b", ast.get_docstring(ast.parse(path.read_text())) or "")
    }
    listed = {
        module
        for each in ("Pure modules of the operator", "Pure modules of the Spark source")
        for module in contract(each)["source_modules"]
    }
    assert calling == listed


STATED = {
    ("docs/internals/architecture.md", "responses of up to {} KiB"): ("INLINE_BYTES_MAX", 1024),
    ("docs/internals/architecture.md", "learn of it within {} ms"): ("HIGH_WATERMARK_S", 0.001),
    ("docs/internals/architecture.md", "flushes every {} s"): ("FLUSH_PERIOD_S", 1),
    ("docs/internals/architecture.md", "loses its lease within {} s"): ("LEASE_TTL_S", 1),
    ("docs/internals/adr/0001-one-process-per-broker.md", "more than {} ms"): ("SLOW_S", 0.001),
    ("docs/internals/adr/0001-one-process-per-broker.md", "At most {} MiB"): (
        "WAITING_BYTES_MAX",
        1 << 20,
    ),
    ("docs/internals/adr/0002-metadata-in-etcd-or-sqlite.md", "{} operations"): (
        "TXN_OPERATIONS_MAX",
        1,
    ),
    ("docs/internals/rooms/requests.md", "pause every {} ms"): ("SLICE_S", 0.001),
    ("docs/internals/rooms/requests.md", "waits for {} s at most"): ("SEEN_S_MAX", 1),
    ("docs/internals/rooms/cluster.md", "wait up to {} s"): ("HELD_MS_MAX", 1000),
    ("docs/concepts/why-and-may-i.md", "Beyond {} of a kind"): ("PER_SECOND_MAX", 1),
    ("docs/concepts/why-and-may-i.md", "last {:,} records"): ("COUNT_MAX", 1),
    ("docs/how-to/operating.md", "not renewed for {} minutes"): ("HANDOVER_S", 60),
    ("docs/how-to/operating.md", "is gone for {} s"): ("LEASE_S", 1),
}
"""Numbers of pages: the sentence, and the constant of the code with the size of the sentence's unit."""


@pytest.mark.parametrize("page, sentence", STATED)
def test_pages_state_the_limits_of_the_code(page: str, sentence: str) -> None:
    name, unit = STATED[page, sentence]
    found = re.compile(rf"^{name}(?:: Final)? = ([\d_.*<< ]+)", re.MULTILINE)
    sources = [path for path in PYTHON if name_of(path).startswith(SOURCE_TREES)]
    values = {eval(value) for path in sources for value in found.findall(path.read_text())}
    text = " ".join((ROOT / page).read_text().split())
    assert any(sentence.format(round(value / unit)) in text for value in values)


def test_contributing_has_the_limits_that_are_checked() -> None:
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    lines = (
        f"Functions up to {FUNCTION_LINES_MAX} lines, modules up to {MODULE_LINES_MAX}, "
        f"folders up to {FOLDER_MODULES_MAX} modules"
    )
    assert lines in text


def test_every_invariant_that_the_code_names_is_on_the_page() -> None:
    named = {
        number
        for path in PYTHON
        if name_of(path).startswith((*SOURCE_TREES, "broker_image/tests/sim/"))
        for number in re.findall(r"\b[IL]\d{1,2}\b", path.read_text())
    }
    listed = re.findall(
        r"^\| ([IL]\d+) \|", (INTERNALS / "invariants.md").read_text(), re.MULTILINE
    )
    assert len(listed) == len(set(listed))
    assert named
    assert named - set(listed) == set()


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    lost = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        path = page.parent / target if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            lost.append(link)
    assert lost == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name not in {"words.md", *GENERATED}], ids=name_of
)
def test_pages_are_in_the_words_of_words_md(page: Path) -> None:
    found = [
        f"{number}: {line.strip()[:80]}"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if UNPLAIN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "page, words", [("README.md", 500), ("docs/internals/architecture.md", 2_000)]
)
def test_the_pages_that_are_read_first_stay_short(page: str, words: int) -> None:
    assert len((ROOT / page).read_text().split()) <= words


SENTENCE_WORDS_MAX = 30


def sentences(page: Path) -> Iterator[str]:
    """Those of paragraphs and lists; tables, headings and blocks have none."""
    text = re.sub(
        r"^ *```.*?^ *```$|<!--.*?-->|^[|#][^\n]*$",
        "\n\n",
        page.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.?!:])[)*\"]*\s+", " ".join(paragraph.split()))


@pytest.mark.parametrize(
    "page", tracked("docs/start/*.md", "docs/how-to/*.md", "docs/concepts/*.md"), ids=name_of
)
def test_pages_for_users_are_in_short_sentences(page: Path) -> None:
    found = list(sentences(page))
    assert len(found) > 1
    assert [each for each in found if len(each.split()) > SENTENCE_WORDS_MAX] == []


def test_pages_that_sources_and_charts_name_are_there() -> None:
    named = {
        (name_of(path), page)
        for path in tracked("*.py", "*.yaml", "*.tpl", "*.txt", "*.json")
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
    }
    assert named
    assert [each for each in sorted(named) if not (ROOT / each[1]).exists()] == []


NEVER_RUN_MAX = 8


def test_few_blocks_of_pages_are_left_out_of_the_run() -> None:
    left_out = [
        reason
        for page in PAGES
        for reason in re.findall(r"^<!-- run: never: (.*) -->$", page.read_text(), re.MULTILINE)
    ]
    assert len(left_out) <= NEVER_RUN_MAX, left_out


def linked_from(page: Path) -> set[Path]:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    return {(page.parent / link).resolve() for link in links} | {page}


def test_every_page_is_in_the_index_of_the_site_or_linked_from_the_readme() -> None:
    site = {
        DOCS / page
        for page in re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    }
    linked = linked_from(ROOT / "README.md")
    assert DOCS / "index.md" in linked
    assert {name_of(page) for page in set(PAGES) ^ (site | linked) if page.suffix == ".md"} == {
        "CHANGELOG.md",
        "docs/history/0.1.md",
        # what registries show for the packages
        "broker_image/README.md",
        "operator/README.md",
        "spark-on-k8s/README.md",
    }


RELEASE_LINES_MAX = 40
ENTRY_LENGTH_MAX = 200


def releases(changelog: str) -> dict[str, list[str]]:
    """The lines of each release, without empty ones."""
    _, *parts = re.split(r"^## ", changelog, flags=re.MULTILINE)
    return {
        title: [line for line in text.splitlines() if line]
        for title, _, text in (part.partition("\n") for part in parts)
    }


def test_what_a_release_means_is_read_in_a_minute() -> None:
    found = releases((ROOT / "CHANGELOG.md").read_text())
    assert found
    for title, lines in found.items():
        assert re.fullmatch(r"Unreleased|\d+\.\d+\.\d+", title)
        assert len(lines) <= RELEASE_LINES_MAX, f"{title}: what nobody has to know is left out"
        assert [line for line in lines if len(line) > ENTRY_LENGTH_MAX] == []
        sections = [line.removeprefix("### ") for line in lines if line.startswith("### ")]
        order = ["Do this when you upgrade", "New", "Changed", "Fixed"]
        assert sections == [section for section in order if section in sections]
        assert all(line.startswith(("- ", "  ", "### ")) or line[0].isupper() for line in lines)


def test_the_changelog_leads_to_pages_that_are_there() -> None:
    page = ROOT / "CHANGELOG.md"
    assert [name_of(target) for target in linked_from(page) if not target.exists()] == []


def test_every_todo_names_its_issue() -> None:
    loose = []
    for path in PYTHON:
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"#.*\b(TODO|FIXME|XXX)\b", line) and not re.search(r"TODO\(#\d+\)", line):
                loose.append(f"{name_of(path)}:{number}")
    assert loose == []


def test_stdlib_names_are_not_shadowed_by_a_folder() -> None:
    # A package named `operator` could never be imported: the standard library's is there first.
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "e2e" / "__init__.py").exists()


def test_exceptions_are_still_needed() -> None:
    stale = []
    for key, reason in EXCEPTIONS.items():
        name, _, function = key.partition("::")
        path = ROOT / name
        assert reason, key
        if not path.exists():
            stale.append(key)
        elif function:
            lengths = [
                (f.end_lineno or 0) - f.lineno + 1 for f in functions(path) if f.name == function
            ]
            if not lengths or max(lengths) <= FUNCTION_LINES_MAX:
                stale.append(key)
        elif len(path.read_text().splitlines()) <= MODULE_LINES_MAX:
            stale.append(key)
    assert stale == []


def test_no_machine_or_index_leaks_into_the_tree() -> None:
    """Lock files name packages and hashes only; sources name no absolute home or work path."""
    leaks = []
    for path in tracked(
        "*.py", "*.lock", "*.toml", "*.sh", "*.yaml", "*.md", "Makefile", "Dockerfile"
    ):
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (
                re.search(r"--(extra-)?index-url|file://|/work/|/root/", line)
                and "$PWD" not in line
            ):
                leaks.append(f"{name_of(path)}:{number}: {line.strip()[:80]}")
    assert leaks == []


@pytest.mark.parametrize("tree", SOURCE_TREES)
def test_names_use_the_words_of_words_md(tree: str) -> None:
    used = {
        f"{name_of(path)}: {token.string}"
        for path in PYTHON
        if name_of(path).startswith(tree)
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        if token.type == tokenize.NAME
        and UNUSED_WORDS.intersection(re.split(r"_|(?<=[a-z])(?=[A-Z])", token.string.lower()))
    }
    assert used == set()
