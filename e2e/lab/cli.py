"""The command line of the lab."""

import argparse
import os
import sys
from pathlib import Path

from e2e.lab import network
from e2e.lab.commands import LabError
from e2e.lab.lab import Lab
from e2e.lab.locking import only_lab
from e2e.lab.settings import settings_from
from e2e.lab.tools import CONTROL_PLANE, ensure_tools

DESCRIPTION = "A Kubernetes of three zones on this machine (Linux, root, 12 GiB of memory)."


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m e2e.lab", description=DESCRIPTION)
    verbs = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")
    verbs.add_parser("build", help="make what is cached: packages, tools, images; start nothing")
    verbs.add_parser("tools", help="build Kubernetes' programs and helm only; needs no root")
    verbs.add_parser("up", help="start it, or finish starting it; prints how to use kubectl")
    verbs.add_parser("down", help="stop it; `up` finds its state again")
    verbs.add_parser("purge", help="stop it and remove its state")
    verbs.add_parser("status", help="its daemons, and everything it has in the kernel")
    archives = verbs.add_parser("import", help="bring image archives (docker save) into the nodes")
    archives.add_argument("archive", nargs="+", type=Path)
    node = verbs.add_parser("node", help="do something to one node")
    node.add_argument("action", choices=["kill", "start", "freeze", "thaw", "cut", "join"])
    node.add_argument("zone")
    inside = verbs.add_parser("sh", help="run a program on a node")
    inside.add_argument("zone")
    inside.add_argument("command", nargs=argparse.REMAINDER)
    partition = verbs.add_parser("partition", help="cut two zones off from each other")
    partition.add_argument("one", help="a zone, or `host` for the control plane")
    partition.add_argument("other")
    verbs.add_parser("heal", help="undo every partition")
    return top


def main(arguments: list[str]) -> int:
    """Run one command; an error is one line and exit code 1."""
    chosen = parser().parse_args(arguments)
    settings = settings_from(os.environ, Path.home())
    lab = Lab(settings, report=lambda line: print(line, flush=True))
    try:
        if chosen.verb == "build":
            lab.prepare()  # each thing made has a lock of its own
        elif chosen.verb in ("up", "down", "purge"):
            _whole(lab, chosen.verb)
        elif chosen.verb == "tools":
            ensure_tools(settings, lab.report, CONTROL_PLANE)
        elif chosen.verb == "node":
            _node(lab, chosen.action, chosen.zone)
        else:
            _rest(lab, chosen)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


def _whole(lab: Lab, verb: str) -> None:
    with only_lab(lab.settings):
        match verb:
            case "up":
                lab.up()
                print(f"export KUBECONFIG={lab.kubeconfig} PATH={lab.settings.bin}:$PATH")
            case "down":
                lab.down()
            case "purge":
                lab.purge()


def _node(lab: Lab, action: str, zone: str) -> None:
    match action:
        case "kill":
            lab.nodes.kill(zone)
        case "start":
            lab.nodes.start(zone)
        case "freeze" | "thaw":
            lab.nodes.freeze(zone, frozen=action == "freeze")
        case "cut" | "join":
            network.set_cable(lab.settings.zone(zone), plugged=action == "join")


def _rest(lab: Lab, chosen: argparse.Namespace) -> None:
    match chosen.verb:
        case "status":
            for name, pid in lab.status().items():
                print(f"{name:<26} {pid if pid is not None else 'ended'}")
            print("\n".join(lab.leftovers()))
        case "import":
            lab.nodes.import_archives(chosen.archive)
        case "sh":
            print(lab.nodes.enter(chosen.zone, *chosen.command), end="")
        case "partition":
            network.partition(lab.settings, chosen.one, chosen.other)
        case "heal":
            network.heal()
