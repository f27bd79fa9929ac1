"""A small Kubernetes and its brokers in memory: enough for the operator to be run against.

Objects are never changed in place, so readers need no copies; `step` is what controllers, kubelets
and the garbage collector do. The operator may die (`Death`) or lose a response at any of its calls.
"""

import copy
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from logfleet.config.keys import TOPIC_KEYS, canonical_values
from logfleet.resources.cluster import ClusterResource
from logfleet.resources.plan import (
    AlterTopicConfig,
    CreateTopic,
    DeleteTopic,
    GrowTopic,
    ObservedTopic,
    PartitionHealth,
    ReplicateTopic,
    TopicAction,
)
from logfleet_operator import names
from logfleet_operator.admin import AdminRefused, AdminUnavailable
from logfleet_operator.clusters import etcd
from logfleet_operator.clusters.may_i import MayIAnswer
from logfleet_operator.kube import KubeConflict, KubeError
from msgspec.structs import replace

from . import claims
from .budgets import budget_allows
from .etcd_cluster import EtcdCluster
from .lives import component, is_config_map_key, is_ready, running_brokers, runs, without_accidents
from .pod_status import ready_condition
from .replicas import Replicas
from .schemas import STATUS_SCHEMAS, undeclared
from .server_side_apply import merge

Manifest = dict[str, Any]
Result = TypeVar("Result")
NAMESPACE = "air"


class Death(BaseException):
    """The operator's process is gone. Not an Exception: nothing in it may catch this."""


class World:
    """Kube and AdminFactory in one.

    serves: ids not fenced. has_node: whether a pod fits on a node. broken_images: of pods that
    never run; idle: never ready. empty_members: etcd pods with a lost volume. refused: (kind, name)
    -> the API server's error; "Topic/status" for a status. webhook: changes applied objects.
    taken_most: how many running brokers the operator removed between two steps, at most.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.topics: dict[str, ObservedTopic] = {}
        self.has_node: Callable[[str], bool] = lambda _: True
        self.node_of: Callable[[str], str] = lambda _: "node-1"
        self.may_i: Callable[[frozenset[int]], MayIAnswer | None] = lambda _: MayIAnswer(may=True)
        self.serves: frozenset[int] | None = None
        self.broken_images: set[str] = set()
        self.idle_images: set[str] = set()
        self.idle_pods: set[str] = set()
        self.resizes = True
        self.taken_most = 0
        self.forbidden_topics: dict[str, str] = {}
        self.forbidden_keys: set[str] = set()
        self.refused: dict[tuple[str, str], str] = {}
        self.webhook: Callable[[Manifest], None] = lambda _: None
        self.empty_members: set[str] = set()
        self.etcd = EtcdCluster(self._call)
        self.replicas = Replicas(self._call, self._changed, partial(running_brokers, self.objects))
        self.unreachable = False
        self.dynamic_config: dict[str, str] = {}
        self.host_ip = "10.0.0.1"
        self.lacks = PartitionHealth()
        self.disruptions_allowed = True
        self.calls: list[str] = []
        self.before_call: Callable[[int], None] = lambda _: None
        self.after_call: Callable[[int], None] = lambda _: None
        self.now_s = 0.0
        self.changes = 0
        self._taken = 0
        self._applied: dict[tuple[str, str, str], Manifest] = {}
        self._uids = itertools.count(1)
        self._versions = itertools.count(1)
        self._ports = itertools.count(30000)
        self._ids = itertools.count(1)
        for plural in ("clusters", "topics", "rebalances"):
            self._store("CustomResourceDefinition", "", f"{plural}.logfleet.dev", {})
        self._store("Namespace", "", NAMESPACE, {})
        self.add_storage_class("zonal", "WaitForFirstConsumer")

    # --- what tests do -------------------------------------------------------------------------

    def clock(self) -> float:
        return self.now_s

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now_s)

    def put(self, document: Manifest) -> Manifest:
        """What `kubectl apply` does: create, or change the spec and so the generation."""
        kind, name = document["kind"], document["metadata"]["name"]
        live = self.objects.get((kind, NAMESPACE, name))
        if live is None:
            return self._store(kind, NAMESPACE, name, copy.deepcopy(document))
        live = copy.deepcopy(live)
        annotations = document["metadata"].get("annotations", {})
        live["metadata"].setdefault("annotations", {}).update(annotations)
        if live["spec"] != document["spec"]:
            live["spec"] = copy.deepcopy(document["spec"])
            live["metadata"]["generation"] += 1
        return self.touch(live)

    def add_node(self, name: str, zone: str) -> None:
        labels = {"topology.kubernetes.io/zone": zone}
        self._store("Node", "", name, {"metadata": {"labels": labels}})

    def add_storage_class(self, name: str, mode: str) -> None:
        """A default class."""
        metadata = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        self._store("StorageClass", "", name, {"volumeBindingMode": mode, "metadata": metadata})

    def remove_cluster_wide(self, kind: str, name: str) -> None:
        del self.objects[kind, "", name]

    def remove(self, kind: str, name: str) -> None:
        """What `kubectl delete` does."""
        del self.objects[kind, NAMESPACE, name]
        self._applied.pop((kind, NAMESPACE, name), None)
        self.changes += 1

    def one(self, kind: str, name: str) -> Manifest:
        return self.objects[kind, NAMESPACE, name]

    def named(self, kind: str) -> list[str]:
        return sorted(name for found, _, name in self.objects if found == kind)

    def ready(self, kind: str, name: str) -> tuple[str, str]:
        """(status, reason) of the Ready condition."""
        for condition in self.one(kind, name).get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready":
                return condition["status"], condition["reason"]
        return "", ""

    def snapshot(self) -> str:
        """Everything that matters, without what differs from run to run."""
        return without_accidents(self.objects, self.topics)

    # --- controllers ---------------------------------------------------------------------------

    def step(self) -> None:
        """One round of everything that reacts to objects."""
        self._taken = 0
        self._collect_garbage()
        # As it is before members come back: a broker's lease (3 s) does not outlive their restart.
        leases = self._etcd_serves()
        for (kind, _, _), live in list(self.objects.items()):
            if kind == "StatefulSet":
                self._run_set(live)
        for (kind, _, _), live in list(self.objects.items()):
            if kind == "Pod":
                self._run_pod(live, leases=leases)
            elif self.resizes and (grown := claims.resized(live)):
                self.touch(grown)

    def _collect_garbage(self) -> None:
        while True:
            uids = {live["metadata"]["uid"] for live in self.objects.values()}
            orphans = [
                key
                for key, live in self.objects.items()
                if live["metadata"].get("ownerReferences")
                and not any(owner["uid"] in uids for owner in live["metadata"]["ownerReferences"])
            ]
            if not orphans:
                return
            for key in orphans:
                del self.objects[key]
                self._applied.pop(key, None)
                self.changes += 1

    def _run_set(self, live: Manifest) -> None:
        spec, metadata = live["spec"], live["metadata"]
        text = json.dumps(spec["template"], sort_keys=True)
        revision = f"{metadata['name']}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        for ordinal in range(spec["replicas"]):
            name = f"{metadata['name']}-{ordinal}"
            claim = f"data-{name}"
            if ("PersistentVolumeClaim", NAMESPACE, claim) not in self.objects:
                template = spec["volumeClaimTemplates"][0]
                made = {"metadata": {"labels": template["metadata"]["labels"]}}
                made["spec"] = {"resources": template["spec"]["resources"]}
                self._store("PersistentVolumeClaim", NAMESPACE, claim, copy.deepcopy(made))
            if ("Pod", NAMESPACE, name) not in self.objects:
                template = copy.deepcopy(spec["template"])
                template["metadata"]["labels"][names.REVISION_LABEL] = revision
                template["metadata"]["labels"][names.POD_NAME_LABEL] = name
                template["metadata"]["ownerReferences"] = [
                    {"uid": metadata["uid"], "controller": True}
                ]
                self._store("Pod", NAMESPACE, name, template)
        for kind, _, name in list(self.objects):
            prefix, _, number = name.rpartition("-")
            if kind == "Pod" and prefix == metadata["name"] and int(number) >= spec["replicas"]:
                self.remove(kind, name)
        status = {
            "observedGeneration": metadata["generation"],
            "updateRevision": revision,
            "replicas": spec["replicas"],
        }
        self._set_status(live, status)

    def _etcd_serves(self) -> bool:
        """True while a quorum of the managed etcd is ready, or another one is used."""
        sets = [
            live["spec"]["replicas"]
            for (kind, _, _), live in self.objects.items()
            if kind == "StatefulSet" and component(live) == names.ETCD
        ]
        ready = [
            name
            for (kind, _, name), live in self.objects.items()
            if kind == "Pod" and component(live) == names.ETCD and is_ready(live)
        ]
        return not sets or len(ready) > sets[0] // 2

    def _schedule(self, live: Manifest) -> Manifest | None:
        """The pod on its node, its claim with a volume; None if there is no room for it."""
        name = live["metadata"]["name"]
        if "nodeName" in live["spec"]:
            return live
        if not self.has_node(name):
            told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            self._set_status(live, {"conditions": [told]})
            return None
        claim = self.one("PersistentVolumeClaim", f"data-{name}")
        if "volumeName" not in claim["spec"]:
            self.touch(claims.bound(claim))
        spec = {**live["spec"], "nodeName": self.node_of(name)}
        return self.touch({**live, "metadata": {**live["metadata"]}, "spec": spec})

    def _run_pod(self, pod: Manifest, *, leases: bool) -> None:
        live = self._schedule(pod)
        if live is None:
            return
        images = {container["image"] for container in live["spec"]["containers"]}
        stuck = bool(images & self.broken_images)
        gate: list[Manifest] = []
        record = self.objects.get(("ConfigMap", NAMESPACE, "fleet-record"), {"data": {}})["data"]
        if record.get(etcd.ADMITTED_KEY) == live["metadata"]["uid"]:
            self.etcd.join(live["metadata"]["name"])
            self.empty_members -= {live["metadata"]["name"]}
        if live["metadata"]["name"] in self.empty_members:
            stuck = True
            ended = {"exitCode": etcd.EMPTY_VOLUME_EXIT}
            gate = [{"name": "gate", "ready": False, "state": {"terminated": ended}}]
        state: Manifest = {"running": {}}
        if stuck:
            state = {"waiting": {"reason": "ImagePullBackOff"}}
        without_lease = component(live) == names.BROKER and not leases
        idle = images & self.idle_images or live["metadata"]["name"] in self.idle_pods
        ready = not (stuck or without_lease or idle)
        status = {
            "hostIP": self.host_ip,
            "conditions": [ready_condition(live, self.now(), ready=ready)],
            "initContainerStatuses": gate,
            "containerStatuses": [{"name": "main", "ready": ready, "state": state}],
        }
        self._set_status(live, status)

    def _set_status(self, live: Manifest, status: Manifest) -> None:
        if live.get("status") != status:
            self.touch({**live, "metadata": {**live["metadata"]}, "status": status})

    # --- Kube ----------------------------------------------------------------------------------

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return self._call(f"get {kind} {name}", lambda: self.objects.get((kind, namespace, name)))

    async def list(
        self, kind: str, namespace: str, labels: Mapping[str, str] | None = None
    ) -> list[Manifest]:
        def read() -> list[Manifest]:
            wanted = (labels or {}).items()
            return [
                live
                for (found, where, _), live in self.objects.items()
                if found == kind
                and namespace in {"", where}
                and wanted <= live["metadata"].get("labels", {}).items()
            ]

        return self._call(f"list {kind}", read)

    async def create(self, manifest: Manifest) -> None:
        kind, metadata = manifest["kind"], manifest["metadata"]

        def make() -> None:
            if (kind, metadata["namespace"], metadata["name"]) in self.objects:
                raise KubeConflict(409, "AlreadyExists", f"{metadata['name']} already exists")
            self._apply(manifest)

        self._call(f"create {kind} {metadata['name']}", make)

    async def apply(self, manifest: Manifest) -> Manifest:
        kind, metadata = manifest["kind"], manifest["metadata"]
        return self._call(f"apply {kind} {metadata['name']}", lambda: self._apply(manifest))

    async def apply_status(self, manifest: Manifest) -> None:
        kind, metadata = manifest["kind"], manifest["metadata"]

        def write() -> None:
            unknown = sorted(undeclared(STATUS_SCHEMAS[kind], manifest["status"], ".status"))
            if unknown:  # as the API server's typed patch
                raise KubeError(500, "", f"{', '.join(unknown)}: field not declared in schema")
            if (f"{kind}/status", metadata["name"]) in self.refused:
                raise KubeError(403, "Forbidden", self.refused[f"{kind}/status", metadata["name"]])
            live = self.objects.get((kind, metadata["namespace"], metadata["name"]))
            if live is None:
                raise KubeError(404, "NotFound", metadata["name"])
            if metadata.get("resourceVersion") not in {None, live["metadata"]["resourceVersion"]}:
                raise KubeConflict(409, "Conflict", "the object was modified")
            self._set_status(live, copy.deepcopy(manifest["status"]))

        self._call(f"status {kind} {metadata['name']}", write)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        assert namespace == NAMESPACE
        self._call(f"delete {kind} {name}", lambda: self._delete(kind, name, uid))

    async def evict_pod(self, namespace: str, name: str, uid: str) -> bool:
        assert namespace == NAMESPACE

        def evict() -> bool:
            if not budget_allows(
                self.objects, self.one("Pod", name), free=self.disruptions_allowed
            ):
                return False
            self._delete("Pod", name, uid)
            return True

        return self._call(f"evict Pod {name}", evict)

    def _call(self, what: str, act: Callable[[], Result]) -> Result:
        number = len(self.calls)
        self.calls.append(what)
        self.before_call(number)
        answer = act()
        self.after_call(number)
        return answer

    def _apply(self, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        key = manifest["kind"], metadata["namespace"], metadata["name"]
        if (key[0], key[2]) in self.refused:
            raise KubeError(403, "Forbidden", self.refused[key[0], key[2]])
        bad_keys = [name for name in manifest.get("data", {}) if not is_config_map_key(name)]
        if manifest["kind"] in {"ConfigMap", "Secret"} and bad_keys:
            raise KubeError(422, "Invalid", f"data: Invalid value: {bad_keys}")
        live = self.objects.get(key)
        expected = metadata.get("resourceVersion")
        if expected and (live is None or live["metadata"]["resourceVersion"] != expected):
            raise KubeConflict(409, "Conflict", "the object was modified")
        if live is None:
            live = self._store(*key, {"metadata": {}})
        elif key[0] == "StatefulSet":
            templates = [each["spec"]["volumeClaimTemplates"] for each in (live, manifest)]
            if templates[0] != templates[1]:
                raise KubeError(422, "Invalid", "spec: Forbidden: updates to statefulset spec ...")
        before = live
        live = copy.deepcopy(live)
        merge(live, self._applied.get(key, {}), copy.deepcopy(manifest))
        if key[0] == "PersistentVolumeClaim":
            claims.admit(before, live, self.objects.values(), self.now())
        self.webhook(live)
        self._applied[key] = copy.deepcopy(manifest)
        if live["kind"] == "Service" and live["spec"].get("type") == "NodePort":
            for port in live["spec"]["ports"]:
                if "nodePort" not in port:
                    port["nodePort"] = next(self._ports)
        if live.get("spec") != before.get("spec"):
            live["metadata"]["generation"] += 1
        return self.touch(live) if live != before else before

    def _delete(self, kind: str, name: str, uid: str) -> None:
        live = self.objects.get((kind, NAMESPACE, name))
        if live is not None and live["metadata"]["uid"] == uid:
            if kind == "Pod" and component(live) == names.BROKER and runs(live):
                self._taken += 1
                self.taken_most = max(self.taken_most, self._taken)
            self.remove(kind, name)

    def _store(self, kind: str, namespace: str, name: str, document: Manifest) -> Manifest:
        live = {"apiVersion": "v1", "kind": kind, **document}
        live["metadata"] = {
            **live.get("metadata", {}),
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{next(self._uids)}",
            "generation": 1,
            "creationTimestamp": self.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return self.touch(live)

    def touch(self, live: Manifest) -> Manifest:
        """Store a new state of an object."""
        metadata = live["metadata"]
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[live["kind"], metadata["namespace"], metadata["name"]] = live
        self.changes += 1
        return live

    # --- brokers -------------------------------------------------------------------------------

    async def open(self, bootstrap: str) -> "World":
        running = any(kind == "Pod" and "main" in name for kind, _, name in self.objects)
        if self.unreachable or not running:
            raise AdminUnavailable(bootstrap)
        return self

    async def close(self) -> None:
        pass

    async def may_stop(self, addresses: Sequence[str], brokers: Sequence[int]) -> MayIAnswer | None:
        assert all(each.endswith(".fleet-brokers.air.svc:9644") for each in addresses)
        return self._call(f"may-i {sorted(brokers)}", lambda: self.may_i(frozenset(brokers)))

    async def serving(self, bootstrap: str) -> frozenset[int] | None:
        return self._call(f"who serves at {bootstrap}", lambda: self.serves)

    async def describe(self, names: Iterable[str]) -> dict[str, ObservedTopic]:
        def read() -> dict[str, ObservedTopic]:
            return {  # brokers keep the text that they were given, and show what it stands for
                name: replace(found, config=canonical_values(found.config, TOPIC_KEYS.get))
                for name in names
                if (found := self.topics.get(name))
            }

        return self._call("describe topics", read)

    async def partition_health(self) -> PartitionHealth:
        return self._call("describe partition health", lambda: self.lacks)

    async def configure(self, desired: ClusterResource) -> str:
        if self.forbidden_keys & desired.config.keys():
            raise AdminRefused("INVALID_CONFIG", "of no use here")
        different = {*desired.config.items()} ^ {*self.dynamic_config.items()}
        if different:
            self._call("alter configs", lambda: self._set_config(desired.config))
        return ", ".join(sorted({key for key, _ in different}))

    def _set_config(self, config: dict[str, str]) -> None:
        self.dynamic_config = config
        self._changed()

    def _changed(self) -> None:
        self.changes += 1

    async def perform(self, actions: Sequence[TopicAction]) -> None:
        for action in actions:
            self._judge(action)
        for action in actions:
            self._call(f"{type(action).__name__} {action.name}", partial(self._perform, action))

    def _judge(self, action: TopicAction) -> None:
        if action.name in self.forbidden_topics:
            raise AdminRefused("POLICY_VIOLATION", self.forbidden_topics[action.name])
        if isinstance(action, AlterTopicConfig) and self.forbidden_keys & action.set.keys():
            raise AdminRefused("INVALID_CONFIG", "of no use here")

    def _perform(self, action: TopicAction) -> None:
        found = self.topics.get(action.name)
        self.changes += 1
        match action:
            case CreateTopic(name, partitions, replicas, config):
                if found is not None:
                    raise AdminRefused("TOPIC_ALREADY_EXISTS", "")
                topic_id = f"id-{next(self._ids)}"
                self.topics[name] = ObservedTopic(topic_id, partitions, replicas or 1, config)
            case GrowTopic(name, partitions):
                self.topics[name] = replace(self.topics[name], partitions=partitions)
            case ReplicateTopic(name, count):
                self.topics[name] = replace(self.topics[name], replicas=count, replicas_most=count)
            case AlterTopicConfig(name, changed, removed):
                before = self.topics[name].config.items()
                config = {key: value for key, value in before if key not in removed} | changed
                self.topics[name] = replace(self.topics[name], config=config)
            case DeleteTopic(name, topic_id):
                if found is not None and topic_id in {None, found.topic_id}:
                    del self.topics[name]
