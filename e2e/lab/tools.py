"""Kubernetes, etcd, CoreDNS, the volume provisioner and Helm, built from pinned Go modules.

Each folder below `tools/` is a Go module with `tool` directives, its go.mod and go.sum committed;
`tools/gen-kube-gomod.sh 1.X.Y` writes the one of a new Kubernetes. A build is cached by the hash of
that folder and of the flags; `bin/` links to the newest.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.lab.caching import exclusively, recipe_key, scratch_beside
from e2e.lab.commands import Argument, run
from e2e.lab.golang import ensure_go, required_version
from e2e.lab.settings import Settings

MODULES = Path(__file__).parent / "tools"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module of tools.

    binaries: what it builds, by the names they get. renamed: what `go build` calls some of them.
    """

    name: str
    binaries: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()

    @property
    def folder(self) -> Path:
        return MODULES / self.name

    @property
    def go_mod(self) -> str:
        return (self.folder / "go.mod").read_text()

    @property
    def key(self) -> str:
        return recipe_key(self.folder, linker_flags(self.name, self.go_mod))

    def built(self, settings: Settings) -> Path:
        return settings.tools / f"{self.name}-{self.key}"


KUBE = Module(
    "kube",
    (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    ),
    (("server", "etcd"),),
)
DNS = Module("dns", ("coredns", "local-path-provisioner"), (("dns", "coredns"),))
HELM = Module("helm", ("helm",))
ALL = (KUBE, DNS, HELM)
# What a Kubernetes without nodes needs; running it takes no root.
CONTROL_PLANE = (KUBE, HELM)


def module_version(go_mod: str, path: str) -> str:
    """The required version of a module, such as `v1.35.4`."""
    found = re.search(rf"^(?:require )?\s*{re.escape(path)} (v\S+)", go_mod, re.MULTILINE)
    assert found, f"go.mod requires no {path}"
    return found[1]


def linker_flags(module: str, go_mod: str) -> str:
    """Without stamped versions every component calls itself v0.0.0-master and skew checks misjudge it."""
    flags = ["-s", "-w"]
    if module == "kube":
        version = module_version(go_mod, "k8s.io/kubernetes")
        stamps = {
            "gitVersion": version,
            "gitMajor": version[1:].split(".")[0],
            "gitMinor": version.split(".")[1],
            "gitTreeState": "clean",
        }
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            for name, value in stamps.items():
                flags += ["-X", f"{package}.{name}={value}"]
    if module == "helm":
        version = module_version(go_mod, "helm.sh/helm/v3")
        flags += ["-X", f"helm.sh/helm/v3/internal/version.version={version}"]
    return " ".join(flags)


def ensure_tools(settings: Settings, report: Report, modules: Sequence[Module] = ALL) -> None:
    """Build what is not there in its version, and point `bin/` at it."""
    for module in modules:
        built = module.built(settings)
        with exclusively(built):
            if not built.exists():
                report(f"building {module.name} from Go modules (minutes, once per version)")
                started = time.monotonic()
                _build(settings, module, built)
                report(f"built {module.name} in {time.monotonic() - started:.0f} s")
        _link(settings, module, built)


def _build(settings: Settings, module: Module, built: Path) -> None:
    go = ensure_go(settings.root, required_version(module.go_mod))
    environment = {
        **os.environ,
        "PATH": f"{go.parent}:{os.environ['PATH']}",
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",
    }
    here = module.folder
    packages = run(go, "list", "-f", "{{.ImportPath}}", "tool", cwd=here, env=environment).split()
    if (here / "main.go").exists():
        packages.append(".")
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", linker_flags(module.name, module.go_mod)]
    with scratch_beside(built) as scratch:
        out = scratch / "bin"
        out.mkdir()
        # `go tool` would build them too, but takes no -ldflags
        build: tuple[Argument, ...] = (
            "nice",
            "-n",
            "10",
            go,
            "build",
            *flags,
            "-o",
            f"{out}/",
            *packages,
        )
        run(*build, cwd=here, env=environment)
        for old, new in module.renamed:
            (out / old).rename(out / new)
        made = {path.name for path in out.iterdir()}
        assert made == set(module.binaries), made
        out.rename(built)


def _link(settings: Settings, module: Module, built: Path) -> None:
    settings.bin.mkdir(parents=True, exist_ok=True)
    for name in module.binaries:
        link = settings.bin / name
        if link.is_symlink() and link.readlink() == built / name:
            continue
        fresh = settings.bin / f".{name}.{os.getpid()}"
        fresh.symlink_to(built / name)
        fresh.replace(link)
