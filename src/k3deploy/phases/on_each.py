"""The same work on several nodes at once: every node finishes, every failure is kept."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.errors import K3Error, PhaseFailed
from k3deploy.domain.names import NodeName

Found = TypeVar("Found")


def try_each(
    nodes: Sequence[NodeName], work: Callable[[NodeName], Found]
) -> tuple[Mapping[NodeName, Found], Mapping[NodeName, K3Error]]:
    """What every node gave, and the failures of the others."""
    if not nodes:
        return {}, {}
    found: dict[NodeName, Found] = {}
    failed: dict[NodeName, K3Error] = {}
    with ThreadPoolExecutor(len(nodes), thread_name_prefix="each") as pool:
        futures = {node: pool.submit(work, node) for node in nodes}
    for node, future in futures.items():
        error = future.exception()
        if error is None:
            found[node] = future.result()
        elif isinstance(error, K3Error):
            failed[node] = error
        else:
            raise error
    return found, failed


def on_each(nodes: Sequence[NodeName], work: Callable[[NodeName], Found], *, doing: str) -> Mapping[NodeName, Found]:
    """As `try_each`; raises the failure there is, or PhaseFailed with all of them."""
    found, failed = try_each(nodes, work)
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        raise PhaseFailed(
            failures=list(failed.values()),
            what=f"{doing} failed on {len(failed)} of {len(nodes)} nodes: {', '.join(failed)}",
            fix="mend the cause above, then run the same command again",
        )
    return found


def within(seconds: float, nodes: Sequence[NodeName], work: Callable[[NodeName], Found]) -> Mapping[NodeName, Found]:
    """What the nodes gave that answered in time; the others are not waited for."""
    if not nodes:
        return {}
    pool = ThreadPoolExecutor(len(nodes), thread_name_prefix="within")
    try:
        futures = {pool.submit(work, node): node for node in nodes}
        done, _ = wait(futures, timeout=seconds)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    found: dict[NodeName, Found] = {}
    for future in done:
        error = future.exception()
        if error is None:
            found[futures[future]] = future.result()
        elif not isinstance(error, K3Error):
            raise error
    return found


def ask_each(svc: Services, nodes: Sequence[NodeName], question: Question) -> Mapping[NodeName, Mapping[str, Any]]:
    """One question to several nodes at the same time, as answers that are not known yet take a round trip each."""
    return on_each(nodes, lambda node: svc.survey.ask(node, question), doing=f"asking about {question.section}")
