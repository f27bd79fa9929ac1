"""A Kubernetes without nodes: etcd, API server and a few controllers as processes on loopback.

It needs no root. The real API server decides on schemas and CEL rules, server-side apply, rights
and admission. The controllers create pods of StatefulSets, count disruption budgets, delete objects
without an owner, and empty namespaces. There is no kubelet: `Kubelets` sets the status of pods in
its place.
"""

import csv
import datetime as dt
import http.client
import json
import os
import secrets
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from logfleet_operator.tls import lenient

from e2e.harness.etcd import EtcdServer, etcd_binaries
from e2e.harness.kube.kubernetes import Kubernetes, Object
from e2e.harness.program import Program
from e2e.lab import pki
from e2e.lab.commands import LabError

# Longer than the 30 s of other programs: at its start the API server writes hundreds of objects.
START_S_MAX = 120.0
CONTROLLERS = (
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "statefulset-controller",
)
# The audit log has each request with its account, which shows rights that are never used.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:masters"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
    ],
}
ADDRESSES = {"127.0.0.1": pki.EKS, "localhost": pki.MICROK8S}
"""Host of the API server -> the style of the authority that signed its certificate there. The first
one is the default.
"""
HOST = next(iter(ADDRESSES))
Right = tuple[str, str, str]
"""(API group, resource or resource/subresource, verb)."""
# PyYAML and Go both read JSON as YAML.
ZONAL: Object = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "zonal",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "example.com/none",
    "volumeBindingMode": "WaitForFirstConsumer",
}


class ControlPlane:
    """tools: the folder of kube-apiserver, kube-controller-manager, kubectl and helm."""

    def __init__(self, tools: Path, directory: Path) -> None:
        self.directory = directory
        self._token = secrets.token_hex(16)
        self._etcd = EtcdServer(etcd_binaries()[0], directory / "etcd")
        self._api = Program("kube-apiserver", [], directory, {"PATH": os.defpath})
        self._controllers = Program("kube-controller-manager", [], directory, {"PATH": os.defpath})
        self.port = self._api.ports.reserve()
        self._tools = tools
        self.kubernetes = Kubernetes(directory / "admin.kubeconfig", tools)

    @property
    def programs(self) -> list[Program]:
        return [self._etcd, self._api, self._controllers]

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    def start(self) -> None:
        """Start it and wait until the API server answers and the controllers run.

        Raises ProgramFailed.
        """
        self._write_files()
        self._etcd.start()
        self._api.command = [str(self._tools / "kube-apiserver"), *self._api_arguments()]
        self._api.launch()
        self._api.wait_until(self._is_ready, START_S_MAX)
        self._controllers.command = [
            str(self._tools / "kube-controller-manager"),
            f"--kubeconfig={self.kubernetes.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            "--secure-port=0",
            # By default it takes 5 minutes until the garbage collector learns of a new kind.
            "--min-resync-period=1m",
        ]
        self._controllers.launch()
        self.kubernetes.apply(ZONAL)

    def close(self) -> None:
        for program in reversed(self.programs):
            program.close()

    def kubeconfig_of(
        self, account: str, namespace: str, *, host: str = HOST, trusts: pki.Style = ADDRESSES[HOST]
    ) -> Path:
        """Return a kubeconfig with a token of a service account, as a pod gets it.

        trusts: the style of the only trusted authority.
        """
        token = self.kubernetes.kubectl("create", "token", account, namespace=namespace)
        place = host.replace(":", "_")  # KUBECONFIG is a list with colons between its entries
        path = self.directory / f"{namespace}-{account}-{place}-{trusts.name}.kubeconfig"
        path.write_text(self._kubeconfig(token.strip(), host, trusts))
        return path

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        now = dt.datetime.now(dt.UTC)
        for host, style in ADDRESSES.items():
            authority = pki.make_authority(style, now)
            server = (
                pki.Subject(host, "kube-apiserver", ips=(host,))
                if host == HOST
                else pki.Subject(host, "kube-apiserver", dns_names=(host,))
            )
            served = pki.make_leaf(authority, server, now)
            pki.write_pair(self.directory, host, *served)
            pki.write_pair(self.directory, style.name, authority.key, authority.certificate)
        accounts = pki.make_leaf(authority, pki.Subject("sa", "accounts"), now)
        pki.write_pair(self.directory, "sa", *accounts)
        (self.directory / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
        self.kubernetes.kubeconfig.write_text(self._kubeconfig(self._token, HOST, ADDRESSES[HOST]))
        with (self.directory / "tokens.csv").open("w") as file:
            csv.writer(file).writerow([self._token, "admin", "admin", "system:masters"])

    def _kubeconfig(self, token: str, host: str, trusts: pki.Style) -> str:
        cluster = {
            "server": f"https://{f'[{host}]' if ':' in host else host}:{self.port}",
            "certificate-authority": str(self.directory / f"{trusts.name}.crt"),
        }
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "it", "user": {"token": token}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            }
        )

    def _api_arguments(self) -> list[str]:
        here = self.directory
        return [
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--etcd-servers={self._etcd.endpoint}",
            f"--tls-cert-file={here}/{HOST}.crt",
            f"--tls-private-key-file={here}/{HOST}.key",
            *(
                f"--tls-sni-cert-key={here}/{host}.crt,{here}/{host}.key"
                for host in ADDRESSES
                if host != HOST
            ),
            f"--token-auth-file={here}/tokens.csv",
            f"--service-account-key-file={here}/sa.crt",
            f"--service-account-signing-key-file={here}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            # Some distributions enable this plugin: it checks the right to set blockOwnerDeletion.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={here}/audit-policy.json",
            f"--audit-log-path={self.audit_log}",
        ]

    def _is_ready(self) -> bool:
        try:
            return self.kubernetes.kubectl("get", "--raw=/readyz") == "ok"
        except LabError:
            return False

    def request(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send a request to the API server as its administrator. Raises LabError.

        The body of a PATCH is a merge patch.
        """
        authority = self.directory / f"{ADDRESSES[HOST].name}.crt"
        context = lenient(ssl.create_default_context(cafile=str(authority)))
        connection = http.client.HTTPSConnection(HOST, self.port, context=context, timeout=30)
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": f"application/{'merge-patch+' if method == 'PATCH' else ''}json",
        }
        try:
            connection.request(
                method, path, json.dumps(body) if body is not None else None, headers
            )
            response = connection.getresponse()
            answer: Object = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise LabError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise LabError(f"{method} {path}: {answer.get('message')}")
        return answer

    def audit(self) -> list[Object]:
        """Return the requests of service accounts, in order.

        Each is an audit.k8s.io/v1 Event of the level Metadata.
        """
        # The last line may be half written.
        lines = self.audit_log.read_text().rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines]

    def rights_used(self, account: str, namespace: str) -> dict[Right, set[str]]:
        """Return each request of a service account with the decision, `allow` or `forbid`."""
        user = f"system:serviceaccount:{namespace}:{account}"
        used: dict[Right, set[str]] = {}
        for event in self.audit():
            if event["user"]["username"] != user or "objectRef" not in event:
                continue
            target = event["objectRef"]
            resource = "/".join(
                filter(None, [target.get("resource", ""), target.get("subresource", "")])
            )
            right = (target.get("apiGroup", ""), resource, event["verb"])
            # The HTTP status does not show this: a namespace that is being deleted also answers 403.
            decision = event["annotations"]["authorization.k8s.io/decision"]
            used.setdefault(right, set()).add(decision)
        return used


class Kubelets:
    """Sets the status of pods as a kubelet does: node, bound claim, Running, Ready.

    It also removes pods that are being deleted. homeless: names of pods that get no node. held:
    pods that stay not ready. broken_images: images that cannot be pulled. became_ready: uids, in
    order.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)
        self.homeless: Callable[[str], bool] = lambda _: False
        self.held: set[str] = set()
        self.broken_images: set[str] = set()
        self.became_ready: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.1):
            try:
                pods = self._plane.request("GET", "/api/v1/pods")["items"]
            except LabError:
                # the next pass tries again; a test that needs the pod waits for it with a time
                # limit
                continue
            for pod in pods:
                try:
                    self._look_after(pod)
                except LabError:
                    continue  # the pod was removed meanwhile, or its namespace is being deleted

    def _look_after(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if "deletionTimestamp" in metadata:
            if "nodeName" in pod["spec"]:
                ends = {"uid": metadata["uid"]}
                self._plane.request(
                    "DELETE", path, {"gracePeriodSeconds": 0, "preconditions": ends}
                )
            return
        if self.homeless(metadata["name"]):
            status = NO_NODE
        elif "nodeName" not in pod["spec"]:
            self._schedule(pod, path)
            return
        else:
            status = pod_status(
                {entry["name"]: entry["image"] for entry in pod["spec"]["containers"]},
                self.broken_images,
                ready=metadata["name"] not in self.held,
            )
        if _summary(pod.get("status", {})) == _summary(status):
            return
        self._plane.request(
            "PATCH", f"{path}/status", {"metadata": {"uid": metadata["uid"]}, "status": status}
        )
        if any(
            each["type"] == "Ready" and each["status"] == "True" for each in status["conditions"]
        ):
            self.became_ready.append(metadata["uid"])

    def _schedule(self, pod: Mapping[str, Any], path: str) -> None:
        """Bind the pod and its claim, as the scheduler and a late-binding provisioner do."""
        metadata = pod["metadata"]
        for volume in pod["spec"].get("volumes", ()):
            if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
                where = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{claim}"
                spec = {"volumeName": f"volume-of-{metadata['name']}"}
                asked = self._plane.request("PATCH", where, {"spec": spec})["spec"]
                given = {"phase": "Bound", "capacity": asked["resources"]["requests"]}
                self._plane.request("PATCH", f"{where}/status", {"status": given})
        self._plane.request(
            "POST",
            f"{path}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
                "target": {"kind": "Node", "name": f"node-of-{metadata['name']}"},
            },
        )


def pod_status(images: Mapping[str, str], broken_images: set[str], *, ready: bool) -> Object:
    """Return a kubelet's status for a pod with these containers (name -> image)."""
    stuck = bool(broken_images & set(images.values()))
    state = {"waiting": {"reason": "ImagePullBackOff"}} if stuck else {"running": {}}
    up = ready and not stuck
    return {
        "phase": "Pending" if stuck else "Running",
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True" if up else "False"}],
        "containerStatuses": [
            {
                "name": name,
                "image": image,
                "imageID": "",
                "ready": up,
                "restartCount": 0,
                "state": state,
            }
            for name, image in images.items()
        ],
    }


NO_NODE: Object = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}


def _summary(status: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the parts of these statuses that change; the API server adds other fields."""
    ready = [
        (entry["type"], entry["status"])
        for entry in status.get("conditions", ())
        if entry["type"] == "Ready" or entry.get("reason") == "Unschedulable"
    ]
    waiting = [
        entry["state"].get("waiting", {}).get("reason")
        for entry in status.get("containerStatuses", ())
    ]
    return status.get("phase"), status.get("hostIP"), ready, waiting
