"""A Kubernetes cluster for tests: kubectl, helm, and waiting for a state that they show.

Nothing here depends on a particular Kubernetes. Errors are LabError with the message of kubectl or
helm.
"""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from e2e.lab.commands import Argument, LabError, run

Object = dict[str, Any]
Found = TypeVar("Found")
ZONE_LABEL = "topology.kubernetes.io/zone"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
POLL_S = 0.25
EVERYTHING = ("-o", "json", "--show-managed-fields")
COMMAND_WITHIN_S = 120.0
HELM_WITHIN_S = 330.0
INSTALL_WITHIN = "150s"
ATTEMPT_WITHIN_S = 30.0


def wait_for(what: str, probe: Callable[[], Found | None], within_s: float) -> Found:
    """Call the probe until it returns a true value; return that value.

    An error of kubectl counts as false, as objects come and go during tests. Raises AssertionError
    with `what` and the last value or error.
    """
    end = time.monotonic() + within_s
    while True:
        last: object
        try:
            found = probe()
            if found:
                return found
            last = found
        except LabError as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"waited {within_s:.0f} s for {what}; last seen: {last}")
        time.sleep(POLL_S)


def condition(resource: Object, kind: str) -> Object | None:
    """Return the resource's condition of this type, such as Ready."""
    found: list[Object] = resource.get("status", {}).get("conditions") or []
    return next((each for each in found if each["type"] == kind), None)


class Kubernetes:
    """One cluster, accessed as its administrator.

    `namespace` is optional for objects without one.
    """

    def __init__(self, kubeconfig: Path, tools: Path) -> None:
        self.kubeconfig = kubeconfig
        self.tools = tools

    def kubectl(
        self,
        *arguments: str,
        namespace: str | None = None,
        stdin: str | None = None,
        within_s: float = COMMAND_WITHIN_S,
    ) -> str:
        scope = ("-n", namespace) if namespace else ()
        command = (self.tools / "kubectl", "--kubeconfig", self.kubeconfig, *scope)
        return run(*command, *arguments, stdin=stdin, timeout_s=within_s)

    def apply(self, *manifests: Path | Object, namespace: str | None = None) -> str:
        """Apply files and objects."""
        said = ""
        for manifest in manifests:
            text = manifest.read_text() if isinstance(manifest, Path) else json.dumps(manifest)
            said += self.kubectl("apply", "-f", "-", namespace=namespace, stdin=text)
        return said

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        metadata = {"name": name, "labels": dict(labels or {})}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def refusal(self, manifest: Path | Object, namespace: str | None = None) -> str:
        """Return the API server's reason for refusing a manifest.

        Raises AssertionError if it accepts it.
        """
        try:
            said = self.apply(manifest, namespace=namespace)
        except LabError as error:
            return str(error)
        raise AssertionError(f"it was not refused: {said}")

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        found: Object = json.loads(
            self.kubectl("get", kind, name, *EVERYTHING, namespace=namespace)
        )
        return found

    def items(self, kind: str, namespace: str | None = None, selector: str = "") -> list[Object]:
        """Return all objects of a kind, in one namespace or in none."""
        labels = ("-l", selector) if selector else ()
        text = self.kubectl("get", kind, *labels, *EVERYTHING, namespace=namespace)
        found: list[Object] = json.loads(text)["items"]
        return found

    def exists(self, kind: str, name: str, namespace: str | None = None) -> bool:
        arguments = ("get", kind, name, "--ignore-not-found", "-o", "name")
        return self.kubectl(*arguments, namespace=namespace) != ""

    def delete(
        self, kind: str, name: str, namespace: str | None = None, *, wait: bool = True
    ) -> None:
        arguments = ("delete", kind, name, f"--wait={str(wait).lower()}", "--ignore-not-found")
        self.kubectl(*arguments, namespace=namespace)

    def wait_condition(
        self,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        is_now: str = "Ready",
        within_s: float,
    ) -> Object:
        """Return the object once a condition is True for its current generation."""

        def probe() -> Object | None:
            found = self.get(kind, name, namespace)
            state = condition(found, is_now)
            if state is None or state["status"] != "True":
                raise LabError(f"{is_now} is {json.dumps(state)}")
            seen = state.get("observedGeneration", found["metadata"].get("generation"))
            return found if seen == found["metadata"].get("generation") else None

        return wait_for(f"{kind} {name} to be {is_now}", probe, within_s)

    def pods(self, namespace: str, selector: str = "") -> list[Object]:
        return self.items("pods", namespace, selector)

    def wait_pod(self, name: str, namespace: str, within_s: float) -> Object:
        """Return the pod once it is Ready."""
        return self.wait_condition("pod", name, namespace, within_s=within_s)

    def run_pod(
        self, name: str, namespace: str, image: str, command: Sequence[str], **spec: Any
    ) -> None:
        """Start a pod of restricted security that runs a command once.

        spec: further fields of the pod's specification. container: further fields of its only
        container.
        """
        security = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": list(command),
            "securityContext": security,
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        } | spec.pop("container", {})
        pod = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            **spec,
        }
        manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}
        self.apply(manifest, namespace=namespace)

    def wait_ended(self, name: str, namespace: str, within_s: float) -> str:
        """Wait until a pod ends.

        Return its log. Raises AssertionError with the log if it failed.
        """

        def probe() -> str | None:
            phase: str = self.get("pod", name, namespace)["status"]["phase"]
            return phase if phase in ("Succeeded", "Failed") else None

        phase = wait_for(f"pod {name} to end", probe, within_s)
        log = self.logs(name, namespace)
        assert phase == "Succeeded", f"pod {name} failed: {log[-4000:]}"
        return log

    def logs(self, pod: str, namespace: str, *options: str) -> str:
        return self.kubectl("logs", pod, *options, namespace=namespace)

    def execute(
        self, pod: str, namespace: str, *command: str, within_s: float = COMMAND_WITHIN_S
    ) -> str:
        """Run a program in a pod."""
        return self.kubectl("exec", pod, "--", *command, namespace=namespace, within_s=within_s)

    def server(self) -> str:
        """Return the URL of the API server."""
        view = ("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
        return self.kubectl(*view)

    def zone_of_node(self) -> dict[str, str]:
        return {
            node["metadata"]["name"]: node["metadata"]["labels"][ZONE_LABEL]
            for node in self.items("nodes")
        }

    def zone_of_pod(self, pod: Object) -> str:
        return self.zone_of_node()[pod["spec"]["nodeName"]]

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run helm; it gets the values as a file named `-`."""
        command: tuple[Argument, ...] = (self.tools / "helm", "--kubeconfig", self.kubeconfig)
        given = None if values is None else json.dumps(values)
        return run(*command, *arguments, stdin=given, timeout_s=HELM_WITHIN_S)

    def install(
        self,
        release: str,
        chart: Path,
        namespace: str,
        values: Mapping[str, Any],
        *options: str,
    ) -> str:
        """Install a chart or upgrade its release, and wait until its objects are ready."""
        command = ("upgrade", release, str(chart), "--install", "--create-namespace")
        wait = ("--wait", "--timeout", INSTALL_WITHIN)
        return self.helm(*command, *wait, "-n", namespace, "-f", "-", *options, values=values)

    def attempt(self, *arguments: str, within_s: float = ATTEMPT_WITHIN_S) -> str:
        """Return kubectl's output whether it succeeds or not.

        For evidence, which must not fail itself.
        """
        command = [str(self.tools / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=within_s
            )
        except subprocess.TimeoutExpired:
            return f"kubectl {' '.join(arguments)} took longer than {within_s:.0f} s\n"
        return done.stdout + done.stderr
