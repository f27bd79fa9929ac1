"""Whether a disruption budget lets a pod be evicted."""

from collections.abc import Mapping
from typing import Any

from logfleet_operator.kube import KubeError

from .lives import is_ready

Manifest = dict[str, Any]


def budget_allows(
    objects: Mapping[tuple[str, str, str], Manifest], pod: Manifest, *, free: bool
) -> bool:
    """Whether a budget allows an eviction (Kubernetes: pod/storage/eviction.go)."""
    labels = pod["metadata"]["labels"]
    budgets = [
        live["spec"]
        for (kind, _, _), live in objects.items()
        if kind == "PodDisruptionBudget"
        and live["spec"]["selector"]["matchLabels"].items() <= labels.items()
    ]
    if len(budgets) > 1:
        raise KubeError(500, "", "This pod has more than one PodDisruptionBudget")
    for budget in budgets:
        match, wanted = budget["selector"]["matchLabels"].items(), budget["minAvailable"]
        healthy = [
            name
            for (found, _, name), live in objects.items()
            if found == "Pod" and match <= live["metadata"]["labels"].items() and is_ready(live)
        ]
        # unhealthyPodEvictionPolicy IfHealthyBudget
        if pod["metadata"]["name"] not in healthy and len(healthy) >= wanted > 0:
            continue
        if not free or len(healthy) <= wanted:
            return False
    return True
