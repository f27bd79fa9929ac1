"""What a node's daemons are told: configuration of containerd, CNI, kubelet and kube-proxy. Pure."""

import json
from typing import Any

from e2e.lab.settings import DNS_IP, PAUSE_IMAGE, POD_CIDR, Settings, Zone

CNI_PROGRAMS = "/usr/lib/cni"
RESOLV_CONF = "options ndots:1\n"  # the lab has no resolver above its own


def containerd_major(version_line: str) -> int:
    """From what `containerd --version` prints: `containerd PACKAGE v1.6.20~ds1 COMMIT`."""
    return int(version_line.split()[2].lstrip("v").split(".")[0])


def containerd_toml(major: int) -> str:
    """Configuration of containerd 1 (format 2) or 2 (format 3), whose plugin names differ."""
    runtime = "io.containerd.cri.v1.runtime" if major >= 2 else "io.containerd.grpc.v1.cri"
    sandbox = "" if major >= 2 else f'sandbox_image = "{PAUSE_IMAGE}"'
    programs = f'bin_dirs = ["{CNI_PROGRAMS}"]' if major >= 2 else f'bin_dir = "{CNI_PROGRAMS}"'
    text = f"""\
version = {3 if major >= 2 else 2}
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."{runtime}"]
  disable_apparmor = true
  # without CAP_SYS_RESOURCE oom_score_adj may not be lowered, and no pod would start
  restrict_oom_score_adj = true
  {sandbox}
[plugins."{runtime}".cni]
  {programs}
  conf_dir = "/etc/cni/net.d"
[plugins."{runtime}".containerd]
  default_runtime_name = "runc"
[plugins."{runtime}".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."{runtime}".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""
    if major >= 2:
        text += f"""\
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"
"""
    return text


def cni_conflist(zone: Zone) -> dict[str, Any]:
    """Routed (ptp) rather than bridged: traffic to a service on the same node needs no br_netfilter."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam",
        "ranges": [[{"subnet": zone.pod_cidr}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [
            {"type": "ptp", "mtu": 1500, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_config(settings: Settings, zone: Zone, memory_reserved: int) -> dict[str, Any]:
    """memory_reserved: bytes kept from pods, since every kubelet sees the whole machine's memory."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{settings.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{settings.pki}/{zone.node}.crt",
        "tlsPrivateKeyFile": f"{settings.pki}/{zone.node}.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/klab/{zone.name}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": ["pods"],
        "systemReserved": {"memory": str(memory_reserved), "cpu": "200m"},
        "clusterDNS": [DNS_IP],
        "clusterDomain": "cluster.local",
        "resolvConf": "/run/lab-resolv.conf",
        # images are imported and cannot be pulled again: never collect them
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "200Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
        # a dead node is noticed soon: tests wait for it
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "4s",
    }


def kube_proxy_config(settings: Settings, zone: Zone) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(settings.kubeconfig("proxy"))},
        "hostnameOverride": zone.node,
        "clusterCIDR": POD_CIDR,
        # nf_conntrack_max is not writable outside the first network namespace
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"minSyncPeriod": "0s"},
    }


def node_files(
    settings: Settings, zone: Zone, *, containerd: int, memory_reserved: int
) -> dict[str, str]:
    """Path below the node's folder -> text. JSON is YAML."""
    return {
        "containerd.toml": containerd_toml(containerd),
        "netd/10-lab.conflist": json.dumps(cni_conflist(zone), indent=1),
        "resolv.conf": RESOLV_CONF,
        "kubelet.yaml": json.dumps(kubelet_config(settings, zone, memory_reserved), indent=1),
        "proxy.yaml": json.dumps(kube_proxy_config(settings, zone), indent=1),
    }
