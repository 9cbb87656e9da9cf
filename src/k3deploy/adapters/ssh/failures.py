"""The words for a machine that could not be reached, was cut off, or took too long."""

import shlex

from k3deploy.adapters.ssh.route import Route
from k3deploy.domain.errors import NodeError, NodeTimeout, NodeUnreachable


def unreachable(route: Route, why: str, *, fix: str = "") -> NodeUnreachable:
    """No session came about."""
    return NodeUnreachable(
        what=f"{route.label}: no SSH connection",
        why=why,
        fix=fix or f"check that the machine runs and that this works from here: {by_hand(route)}",
        context=context(route),
    )


def cut_off(route: Route, doing: str, why: str, *, may_have_run: bool) -> NodeUnreachable:
    """There was a session, and it broke."""
    return NodeUnreachable(
        what=f"{route.label}: the SSH connection broke during: {doing}",
        why=why + ("; it may have run, wholly or in part, so it was not sent again" if may_have_run else ""),
        fix="run the same command again: finished work is not repeated",
        context=context(route),
    )


def too_long(route: Route, doing: str, limit: str, *, detail: str) -> NodeTimeout:
    """The deadline passed while the node still answers."""
    return NodeTimeout(
        what=f"{route.label}: not finished in {limit}: {doing}",
        why=detail,
        fix=f"look at the machine: {by_hand(route)}",
        context=context(route),
    )


def too_much(route: Route, doing: str, limit_bytes: int) -> NodeError:
    """More output than any of our commands has reason to print."""
    return NodeError(
        what=f"{route.label}: printed more than {limit_bytes} bytes: {doing}",
        why="reading on could fill this machine's memory",
        fix=f"look at what it prints: {by_hand(route)}",
        context=context(route),
    )


def context(route: Route) -> dict[str, object]:
    return {"node": route.node or "", "address": route.address}


def by_hand(route: Route) -> str:
    """The ssh command line that a person would type for this route. Shown, never run."""
    words = ["ssh"]
    hops = []
    hop = route.via
    while hop is not None:
        hops.append(hop.address)
        hop = hop.via
    words += ["-J", ",".join(reversed(hops))] if hops else []
    words += ["-i", str(route.identities.files[0])] if route.identities.is_explicit else []
    words += ["-p", str(route.port)] if route.port != 22 else []
    return shlex.join([*words, f"{route.user}@{route.host}"])
