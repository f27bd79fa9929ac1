"""The pages that are made from the code: `make pages` writes them, a test compares them."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml
from logfleet.checks.docs import check_docs
from logfleet.config.docs import config_docs
from logfleet.telemetry.docs import metric_docs

from e2e.harness.images import ROOT
from e2e.pages.commands import command_docs
from e2e.pages.differences import difference_docs
from e2e.pages.fields import Schema, table
from e2e.pages.recipes import recipe_docs
from e2e.pages.spark_options import option_docs
from e2e.pages.testing_api import api_docs

DOCS: Final = ROOT / "docs"
CRDS: Final = {"Cluster": "clusters.yaml", "Topic": "topics.yaml", "Rebalance": "rebalances.yaml"}
CHARTS: Final = {
    "operator": "installs the operator",
    "cluster": "installs a Cluster with its Topics",
    "spark-job": "runs one of the Spark jobs",
}


def resource_docs() -> str:
    """Every field of the custom resources."""
    parts = ["# Resources\n\nThe fields of the kinds in `crds/`, API `logfleet.dev/v1beta1`.\n"]
    for kind, file in CRDS.items():
        definition = yaml.safe_load((ROOT / "crds" / file).read_text())
        schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        parts += [f"## {kind}\n\n{schema['description']}\n"]
        parts += [table(schema["properties"][each], each) for each in ("spec", "status")]
    return "\n".join(parts)


def chart_docs() -> str:
    """Every value of the charts, with its default and comment."""
    parts = ["# Chart values\n\nWhat `helm install --set` and `-f` take, with the defaults.\n"]
    for name, what in CHARTS.items():
        values = (ROOT / "charts" / name / "values.yaml").read_text().strip()
        parts += [f"## {name}\n\nThe chart `charts/{name}` {what}.\n\n```yaml\n{values}\n```\n"]
    return "\n".join(parts)


GENERATED: Final[dict[Path, Callable[[], str]]] = {
    DOCS / "how-to" / "error-paths.md": recipe_docs,
    DOCS / "differences" / "responses.md": difference_docs,
    DOCS / "reference" / "charts.md": chart_docs,
    DOCS / "reference" / "checks.md": check_docs,
    DOCS / "reference" / "commands.md": command_docs,
    DOCS / "reference" / "configs.md": config_docs,
    DOCS / "reference" / "metrics.md": metric_docs,
    DOCS / "reference" / "resources.md": resource_docs,
    DOCS / "reference" / "testing.md": api_docs,
    DOCS / "spark" / "options.md": option_docs,
}


def main() -> None:
    for path, made in GENERATED.items():
        path.write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
