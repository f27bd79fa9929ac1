#!/usr/bin/env python3
"""Writes spark-on-k8s/submit/applications: a SparkApplication for each example of the chart.

usage: python charts/spark_applications.py HELM. `make apiserver` fails if a committed file is out
of date.
"""

import subprocess
import sys
from pathlib import Path

CHART = Path(__file__).parent / "spark-job"
TARGET = CHART.parents[1] / "spark-on-k8s" / "submit" / "applications"
ACCOUNT = "spark"
"""The service account of submit/rbac.yaml."""
CLAIM = "spark-data"
"""The claim of submit/rbac.yaml."""


def render(helm: Path, example: Path) -> str:
    """Render an example's values to a manifest, with the account and claim of submit/rbac.yaml."""
    head = "".join(
        line for line in example.read_text().splitlines(keepends=True) if line.startswith("#")
    )
    done = subprocess.run(
        [
            *(str(helm), "template", example.stem, str(CHART), "-f", str(example), "-n", "spark"),
            *("--kube-version", "1.30.0"),
            *("--set", "sparkOperator.enabled=true,monitoring.dashboard.enabled=false"),
            *("--set", f"serviceAccount.create=false,serviceAccount.name={ACCOUNT}"),
            *("--set", f"claim.name={CLAIM}", "--show-only", "templates/spark-application.yaml"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    body = [line for line in done.stdout.splitlines() if not line.startswith(("---", "# Source"))]
    kept = [line for line in body if "helm.sh/chart" not in line and "managed-by: Helm" not in line]
    return (
        f"{head}# Apply rbac.yaml first. Made by charts/spark_applications.py.\n"
        + "\n".join(kept).strip()
        + "\n"
    )


def wanted(helm: Path) -> dict[Path, str]:
    """Return path -> content of every manifest."""
    examples = sorted((CHART / "examples").glob("*.yaml"))
    return {TARGET / example.name: render(helm, example) for example in examples}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for path, text in wanted(Path(sys.argv[1])).items():
        path.write_text(text)
