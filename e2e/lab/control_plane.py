"""The control plane: etcd, API server, controller manager and scheduler as processes on the host."""

from e2e.lab.cgroups import CONTROL
from e2e.lab.commands import run, succeeds, wait_until
from e2e.lab.processes import Daemons
from e2e.lab.settings import HOST_IP, POD_CIDR, SERVICE_CIDR, Settings

ETCD_CLIENTS = "http://127.0.0.1:23790"
ETCD_PEERS = "http://127.0.0.1:23800"
READY_WITHIN_S = 90.0


def etcd_arguments(settings: Settings) -> list[str]:
    return [
        "--name=lab",
        f"--data-dir={settings.run / 'etcd'}",
        f"--listen-client-urls={ETCD_CLIENTS}",
        f"--advertise-client-urls={ETCD_CLIENTS}",
        f"--listen-peer-urls={ETCD_PEERS}",
        f"--initial-advertise-peer-urls={ETCD_PEERS}",
        f"--initial-cluster=lab={ETCD_PEERS}",
        "--unsafe-no-fsync",  # nobody wants a lab back after a power cut of the host
        "--log-level=warn",
    ]


def apiserver_arguments(settings: Settings) -> list[str]:
    pki = settings.pki
    return [
        f"--advertise-address={HOST_IP}",
        f"--bind-address={HOST_IP}",
        "--secure-port=6443",
        f"--etcd-servers={ETCD_CLIENTS}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP",
        # webhooks and aggregated APIs: dial pod addresses, as no kube-proxy runs on the host
        "--enable-aggregator-routing=true",
        f"--requestheader-client-ca-file={pki}/ca.crt",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        # pods leave a dead node after 15 s, not Kubernetes' 300 s: tests wait for it
        "--default-not-ready-toleration-seconds=15",
        "--default-unreachable-toleration-seconds=15",
    ]


def controller_manager_arguments(settings: Settings) -> list[str]:
    pki = settings.pki
    return [
        *_own_kubeconfig(settings, "kcm"),
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--cluster-cidr={POD_CIDR}",
        "--allocate-node-cidrs=false",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
    ]


def scheduler_arguments(settings: Settings) -> list[str]:
    return _own_kubeconfig(settings, "scheduler")


def start_control_plane(settings: Settings, daemons: Daemons) -> None:
    """The API server answers afterwards; controllers and scheduler are started."""

    def start(name: str, arguments: list[str]) -> None:
        daemons.start(name, CONTROL, settings.bin / name, *arguments)

    def is_ready() -> bool:
        for name in ("etcd", "kube-apiserver"):
            daemons.assert_running(name)
        admin = settings.kubeconfig("admin")
        return succeeds(settings.bin / "kubectl", "--kubeconfig", admin, "get", "--raw=/readyz")

    start("etcd", etcd_arguments(settings))
    start("kube-apiserver", apiserver_arguments(settings))
    wait_until("the API server", is_ready, READY_WITHIN_S)
    start("kube-controller-manager", controller_manager_arguments(settings))
    start("kube-scheduler", scheduler_arguments(settings))


def kubectl(settings: Settings, *arguments: str, timeout_s: float | None = None) -> str:
    """kubectl as the lab's administrator."""
    admin = settings.kubeconfig("admin")
    return run(settings.bin / "kubectl", "--kubeconfig", admin, *arguments, timeout_s=timeout_s)


def _own_kubeconfig(settings: Settings, user: str) -> list[str]:
    file = settings.kubeconfig(user)
    return [
        f"--kubeconfig={file}",
        f"--authentication-kubeconfig={file}",
        f"--authorization-kubeconfig={file}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]
