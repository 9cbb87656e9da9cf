"""Begin as a member of a swarm: who this node is to the others, what it can give them, what it lacks."""

from typing import Any

from k3deploy.remote.fetch_queue import FetchQueue
from k3deploy.remote.hub_cache import Found, Repository, Wanted, wanted_files
from k3deploy.remote.peer_list import PeerList
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.share_protocol import Me
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.swarm_member import SwarmMember
from k3deploy.remote.swarm_plan import SwarmPlan


def unproved_files(repository: Repository, files: list[Wanted], missing: list[Wanted], stamps: Stamps) -> list[Wanted]:
    """Large files that are here and that nobody has hashed: peers may not have them, and none must be fetched."""
    lacking = {file.path for file in missing}
    return [
        file
        for file in files
        if file.is_sha256
        and file.path not in lacking
        and isinstance(found := repository.look_at(file), Found)
        and stamps.digest_of(file, found) is None
    ]


def join(args: dict[str, Any], repository: Repository, lacking: list[Wanted], queue: FetchQueue) -> SwarmMember:
    """From here on the tracker is asked. `args` are those of `fetch.main`; `lacking`: what has to come or be proved.

    Raises Refusal where the run's nodes do not know this one.
    """
    peers = PeerList(args["swarm"]["peers_file"])
    node, nodes = args["swarm"]["node"], peers.nodes()
    if node not in nodes:
        raise Refusal(
            "this node is not in the list of those that share weights",
            why=f"{args['swarm']['peers_file']} names {', '.join(nodes) or 'nobody'}",
            fix="run the same command again: it writes the list anew",
            found=str(node),
            kind="hub",
        )
    paths = {file.path for file in lacking}
    plan = SwarmPlan(
        wanted_files(args["manifest"]),
        paths,
        {file.path for file in lacking if isinstance(repository.look_at(file), Found)},
        queue,
        in_flight=args["in_flight"],
        is_auto=args["strategy"] == "auto",
    )
    return SwarmMember(args, repository, peers, Me(nodes[node], args["secrets"]["swarm_token"]), queue, plan, lacking)
