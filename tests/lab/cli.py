"""`scripts/lab`: the command line over `Lab`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from tests.lab import assets, folders, loopback
from tests.lab import lab as labs
from tests.lab.errors import LabError
from tests.lab.faults import FAULTS
from tests.lab.hardware import ALL
from tests.lab.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.lab.node import Node


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        code: int = options.act(options)
    except LabError as err:
        print(f"lab: error: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return 130
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/lab", description="Real nodes to deploy on, on this one machine.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    up = verbs.add_parser("up", help="bring a lab up, or complete one")
    _name(up)
    up.add_argument("--profile", default=labs.DEFAULT_PROFILE, choices=[each.profile for each in ALL])
    up.add_argument("--nodes", type=int, metavar="N", help="another number of nodes than the profile's")
    up.add_argument("--no-docker", action="store_true", help="nodes without a running dockerd")
    up.add_argument("--variant", help="which miniature checkpoint the hub serves")
    up.add_argument("--shared", action="store_true", help="a volume that all nodes see at /shared")
    up.set_defaults(act=_up)

    down = verbs.add_parser("down", help="take a lab down; only the cache remains")
    which = down.add_mutually_exclusive_group()
    _name(which)
    which.add_argument("--all", action="store_true", help="every lab of this user")
    down.set_defaults(act=_down)

    ssh = verbs.add_parser("ssh", help="log in to a node, or run a command there")
    _name(ssh)
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    ssh.set_defaults(act=_ssh)

    fault = verbs.add_parser(
        "fault",
        help="do to a node what happens to rented machines",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {kind + ' ' + each.usage:28}{each.summary}" for kind, each in FAULTS.items()),
    )
    _name(fault)
    fault.add_argument("node")
    fault.add_argument("kind", choices=list(FAULTS), metavar="KIND")
    fault.add_argument("arguments", nargs="*", metavar="ARG")
    fault.set_defaults(act=_fault)

    inventory = verbs.add_parser("inventory", help="what is on a node, as JSON")
    _name(inventory)
    inventory.add_argument("node")
    inventory.set_defaults(act=_inventory)

    status = verbs.add_parser("status", help="which labs there are, and how they are")
    status.set_defaults(act=_status)

    prepare = verbs.add_parser("prepare", help="fill the cache: the only step that needs package indexes")
    prepare.add_argument("--variant", action="append", help="checkpoints to build (default: all that profiles use)")
    prepare.set_defaults(act=_prepare)

    run = verbs.add_parser("exec", help="run a program on the lab's network, in its work folder, with its environment")
    _name(run)
    run.add_argument("--here", action="store_true", help="stay in the current folder")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(act=_exec)
    return parser


def _name(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--name", default=labs.DEFAULT_NAME, help="which lab (default: %(default)s)")


def _up(options: argparse.Namespace) -> int:
    if loopback.is_wanted():
        print(loopback.up(options.name, options.profile, options.nodes, options.variant).path)
        return 0
    lab = Lab.up(
        options.name,
        options.profile,
        options.nodes,
        docker=not options.no_docker,
        variant=options.variant,
        shared=options.shared,
    )
    print(lab.path)
    return 0


def _down(options: argparse.Namespace) -> int:
    for name in labs.names_of_labs() if options.all else [options.name]:
        if folders.kind_of(name) == loopback.KIND:
            loopback.take_down(name)
        else:
            labs.take_down(name)
    return 0


def _find(name: str) -> Lab | loopback.LoopbackLab:
    return loopback.find(name) if folders.kind_of(name) == loopback.KIND else Lab.find(name)


def _node(options: argparse.Namespace) -> Node:
    """A node for the verbs that need a real one."""
    lab = _find(options.name)
    if isinstance(lab, loopback.LoopbackLab):
        raise LabError("a loopback lab can't do that", why=loopback.NOT_COVERED, fix="run scripts/lab as root")
    return lab.node(options.node)


def _ssh(options: argparse.Namespace) -> int:
    argv = _find(options.name).ssh_argv(options.node, *options.command)
    os.execvp(argv[0], argv)  # noqa: S606 - the lab's own argv; the terminal goes to ssh


def _fault(options: argparse.Namespace) -> int:
    _node(options).fault(options.kind, *options.arguments)
    return 0


def _inventory(options: argparse.Namespace) -> int:
    print(json.dumps(_node(options).inventory(), indent=1, sort_keys=True))
    return 0


def _status(_: argparse.Namespace) -> int:
    for name in labs.names_of_labs():
        try:
            print("\n".join(_find(name).describe()))
        except LabError:
            print(f"{name}: coming up, going down, or left half-built (scripts/lab down --name {name})")
    return 0


def _prepare(options: argparse.Namespace) -> int:
    for variant in options.variant or sorted({each.variant for each in ALL}):
        ready = assets.prepare(variant)
        print(f"node image {ready.base_image}\nregistry   {ready.registry}\ncheckpoint {ready.hub_root}")
    return 0


def _exec(options: argparse.Namespace) -> int:
    lab = _find(options.name)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise LabError("exec: which command?", fix="scripts/lab exec k3deploy up --profile lab-h100x32")
    if not options.here:
        os.chdir(lab.folder.work)
    argv = lab.exec_argv(command)
    os.execvpe(argv[0], argv, lab.exec_env())  # noqa: S606 - run what was asked for, in our place
