"""What `verify-shards --local` is joined from: a folder, a list of files, the programs that nodes run."""

import platform
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from k3deploy.adapters.local_weights import LocalWeights, find_weights, read_manifest
from k3deploy.domain.errors import HubError, ProfileError, UsageError
from k3deploy.domain.weights import cache_folder

if TYPE_CHECKING:
    from k3deploy.adapters.hub.client import HuggingFace
    from k3deploy.domain.proof_level import ProofLevel
    from k3deploy.domain.shard_report import ShardReport
    from k3deploy.domain.weights import Manifest


def look_here(
    path: Path, manifest_path: Path | None, profile: str | None, level: "ProofLevel", *, repair: bool
) -> "ShardReport":
    """Look at a folder, and with `repair` mend it. Raises ProfileError, HubError, NodeError, Interrupted."""
    from k3deploy.adapters.cancel import EventCancel
    from k3deploy.adapters.clock import SystemClock
    from k3deploy.adapters.hub.client import HuggingFace
    from k3deploy.adapters.hub.refetch import Refetch
    from k3deploy.adapters.local_program import LocalPrograms
    from k3deploy.cli.console import open_console
    from k3deploy.cli.interrupt import stop_on_signal
    from k3deploy.flows.verify_local import LocalLook

    if platform.system() != "Linux":
        raise UsageError(
            what="--local works on Linux only",
            why="the proof asks the kernel for direct reads, and who has a file open",
            fix="run it on the machine that holds the weights",
        )
    hub = HuggingFace()
    wanted = _wanted(profile)
    repo = next(iter(wanted), None)
    given = read_manifest(manifest_path, repo) if manifest_path else None
    found = find_weights(path, given.repo if given else repo)
    if given:
        manifest, source = given, str(manifest_path)
    else:
        manifest, source = _manifest(found, wanted, hub)
    if found.repo not in (None, manifest.repo):
        raise ProfileError(
            what=f"{found.folder} holds {found.repo}, and the list of files is of {manifest.repo}",
            fix="name the folder and the list of the same repository",
        )
    if repair and not found.is_plain and found.repo is None:
        raise ProfileError(
            what=f"{found.folder} is not named as the Hub's client names it, so it would fetch into another folder",
            fix=f"rename it to {cache_folder(manifest.repo)}, then run the same command again",
        )
    words = ["--local", str(path)]
    words += ["--manifest", str(manifest_path)] if manifest_path else []
    words += ["--profile", profile] if profile else []
    cancel, console = EventCancel(), open_console(sys.stderr)
    look = LocalLook(
        where=found.program_args,
        manifest=manifest,
        source=source,
        by_name=found.layout in ("home", "repository"),
        again=f"k3deploy verify-shards --repair {shlex.join(words)}",
        programs=LocalPrograms(),
        refetch=Refetch(hub, found.folder, None if found.is_plain else found.folder.parent),
        sink=console,
        clock=SystemClock(),
        cancel=cancel,
    )
    try:
        with stop_on_signal(cancel, lambda: "stopping; what was hashed so far is kept"):
            report = look.verify(level)
            if repair and report.needs_repair:
                report = look.repair(report)
    finally:
        console.close()
    return report


def _wanted(profile: str | None) -> Mapping[str, str]:
    """Commit by repository, the model's first, as the profile has them."""
    if profile is None:
        return {}
    from k3deploy.adapters.profiles import load_profile
    from k3deploy.domain.weights import wanted_repositories

    return dict(wanted_repositories(load_profile(profile).model))


def _manifest(found: LocalWeights, wanted: Mapping[str, str], hub: "HuggingFace") -> "tuple[Manifest, str]":
    """From the Hub; where it does not answer, the list that its client left beside the files."""
    repo = found.repo or next(iter(wanted), None)
    commit = wanted.get(repo or "") or found.commit
    if repo is None or commit is None:
        lacks = "which repository it is of" if repo is None else "which commit it is of"
        raise ProfileError(
            what=f"{found.folder} does not say {lacks}",
            why="a cache names both; plain files name neither",
            fix="name a profile (--profile) or the list of its files (--manifest FILE)",
            context={"repo": repo or "unknown", "commit": commit or "unknown"},
        )
    try:
        return hub.manifest(repo, commit), "the hub"
    except HubError as error:
        tree = found.tree(commit)
        if not tree.is_file():
            raise
        reason = error.what
    return read_manifest(tree, repo), f"the client's own {tree}, as {reason}"
