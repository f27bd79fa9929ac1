"""Evidence for a failed test on Kubernetes: one page to read, and a folder with everything."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.harness.kube.kubernetes import Kubernetes, Object

# Number of kubectl processes at the same time, as the machine is busy already.
LOGS_AT_ONCE = 4
EVENTS_SHOWN = 15
# Every node reports these warnings at its start; they do not explain a failure.
BORING = frozenset({"CgroupV1"})
FILES = {
    "objects.txt": ("get", "all,pvc,pv,configmap", "-A", "-o", "wide"),
    "resources.yaml": ("get", "logfleet", "-A", "-o", "yaml"),
    "events.txt": ("get", "events", "-A", "--sort-by=.metadata.creationTimestamp"),
    "pods.txt": ("describe", "pods", "-A"),
    "nodes.txt": ("describe", "nodes"),
}


def keep(kubernetes: Kubernetes, folder: Path) -> None:
    """Write all objects, events and logs of pods, including those of restarted containers."""
    folder.mkdir(parents=True, exist_ok=True)
    commands: list[tuple[str, Sequence[str]]] = list(FILES.items())
    for pod in _items(kubernetes, "pods"):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        logs = ("logs", name, "-n", namespace, "--all-containers")
        commands.append((f"{namespace}-{name}.log", logs))
        if any(status["restartCount"] for status in _containers(pod)):
            commands.append((f"{namespace}-{name}-previous.log", (*logs, "--previous")))

    def write(file: str, arguments: Sequence[str]) -> None:
        (folder / file).write_text(kubernetes.attempt(*arguments))

    with ThreadPoolExecutor(LOGS_AT_ONCE) as pool:
        for done in [pool.submit(write, *command) for command in commands]:
            done.result()


def page(kubernetes: Kubernetes) -> str:
    """List in a few lines what is wrong: resources, pods, the last warnings."""
    resources = [resource_line(each) for each in _items(kubernetes, "logfleet")]
    pods = [pod_line(pod) for pod in _items(kubernetes, "pods")]
    events = _items(kubernetes, "events", "--field-selector=type=Warning")
    return "\n".join(
        [*_kept(resources), *_kept(pods), *(warning_lines(events) or ["no warning events"])]
    )


def resource_line(resource: Object) -> str | None:
    """Describe a Cluster or Topic that is not Ready, with the operator's reason.

    None if it is Ready.
    """
    conditions = resource.get("status", {}).get("conditions") or []
    ready = next((each for each in conditions if each["type"] == "Ready"), None)
    if ready is not None and ready["status"] == "True":
        return None
    said = (
        f"{ready['reason']}: {ready['message']}" if ready else "the operator has not said anything"
    )
    return f"{resource['kind']} {_name(resource)} is not Ready: {said}"


def pod_line(pod: Object) -> str | None:
    """Describe a pod that is neither ready nor completed, with the reason; None for others."""
    status = pod.get("status", {})
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    if status.get("phase") == "Succeeded" or conditions.get("Ready", {}).get("status") == "True":
        return None
    why = [
        f"{each['name']} {kind} {state.get('reason', '')} {state.get('message', '')}".strip()
        for each in _containers(pod)
        for kind, state in each.get("state", {}).items()
        if not (kind == "terminated" and state.get("exitCode") == 0)
    ]
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        why.append(scheduled.get("message", "not scheduled"))
    node = pod.get("spec", {}).get("nodeName", "no node")
    return f"pod {_name(pod)} on {node}, {status.get('phase')}: {'; '.join(why)}"


def warning_lines(events: Iterable[Object]) -> list[str]:
    """List the last warnings, oldest first, each with its number of occurrences."""

    def seen(event: Object) -> str:
        last = event.get("lastTimestamp") or event.get("eventTime")
        return str(last or event["metadata"]["creationTimestamp"])

    telling = [event for event in events if event.get("reason") not in BORING]
    return [
        f"{seen(event)} {event['involvedObject'].get('kind')} "
        f"{event['metadata']['namespace']}/{event['involvedObject'].get('name')} "
        f"{event.get('reason')} x{event.get('count') or 1}: {event.get('message', '')[:300]}"
        for event in sorted(telling, key=seen)[-EVENTS_SHOWN:]
    ]


def _items(kubernetes: Kubernetes, kind: str, *options: str) -> list[Object]:
    """Return all objects of a kind; none if the API server does not answer or lacks the kind."""
    try:
        found: list[Object] = json.loads(
            kubernetes.attempt("get", kind, "-A", "-o", "json", *options)
        )["items"]
    except ValueError:
        return []
    return found


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _name(resource: Object) -> str:
    return f"{resource['metadata']['namespace']}/{resource['metadata']['name']}"


def _kept(lines: Iterable[str | None]) -> list[str]:
    return [line for line in lines if line is not None]
