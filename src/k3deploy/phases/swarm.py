"""The nodes of a run as they give weights to each other: who they are, what they trust each other by, who shares now.

One object for all units of a flow: the first one that fetches finds out for all, the others join.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from k3deploy.contracts import Services
from k3deploy.domain.command import Program, Secret
from k3deploy.domain.names import NodeName
from k3deploy.domain.weights import Manifest
from k3deploy.phases.detached import DetachedJob
from k3deploy.phases.on_each import try_each, within
from k3deploy.phases.weights_site import WeightsSite, job_name

# Nodes that have not answered by then are left out for now; they join when their own turn comes.
GATHER_S: Final = 3.0
JOIN_TIMEOUT_S: Final = 90.0
# A node that has all its files gives to others this long after it was last asked.
LINGER_S: Final = 900.0


@dataclass(frozen=True)
class Membership:
    """What a fetch job needs to take part. `is_late`: others were introduced, and may be through, without this node."""

    args: Mapping[str, Any]
    token: Secret
    is_late: bool


@dataclass
class Swarm:
    """Known so far: private addresses, the run's token, and which nodes share which repository."""

    site: WeightsSite
    _lock: Lock = field(default_factory=Lock)
    _addresses: dict[NodeName, str] = field(default_factory=dict)
    _token: Secret | None = None
    _sharing: set[tuple[NodeName, str]] = field(default_factory=set)

    def member(self, svc: Services, node: NodeName, manifest: Manifest) -> Membership:
        """What this node's fetch job has to know. Raises K3Error."""
        with self._lock:
            is_late = bool(self._addresses) and node not in self._addresses
            token = self._token or self._gather(svc)
            if node not in self._addresses:
                self._addresses[node] = self._address(svc, node)
            told = {other for other, _ in self._sharing}
        if is_late:
            try_each([*told], lambda other: self._introduce(svc, other, token))
        args = {
            "run": str(self.site.run),
            "node": str(node),
            "peers_file": self.site.folder.peers,
            "ports": self._ports(manifest),
        }
        return Membership(args, token, is_late)

    def begin(self, svc: Services, manifest: Manifest, fetch: DetachedJob) -> None:
        """Let a node share what it has of a repository, and start its fetch."""
        self._start(svc, fetch.node, manifest, fetch)

    def wake_holders(self, svc: Services, manifest: Manifest, *, even_again: bool = False) -> None:
        """Nodes that have proved files of a repository and nothing to fetch share nothing by themselves.

        One that cannot be woken is one source less, not a reason to fail. `even_again`: those too that were started
        before, as a share ends when everybody that it knows of has everything.
        """
        repo = manifest.repo

        def wake(node: NodeName) -> None:
            theirs = next(each for each in self.site.held(svc, node) if each.manifest.repo == repo)
            if theirs.found.proved > 0:
                self._start(svc, node, manifest)

        with self._lock:
            asleep = [node for node in self._addresses if even_again or (node, repo) not in self._sharing]
        within(GATHER_S, asleep, wake)

    def _gather(self, svc: Services) -> Secret:
        """The private addresses of all nodes that say theirs soon, and the token that one of them was given before.

        Another laptop may have given it; where there is none, a new one is made.
        """
        found = within(GATHER_S, self.site.topology.nodes, lambda node: self._look(svc, node))
        self._addresses = {node: address for node, (address, _) in found.items()}
        told = [node for node, (_, has_token) in found.items() if has_token]
        self._token = Secret(self._kept_token(svc, told) or secrets.token_urlsafe(32))
        return self._token

    def _kept_token(self, svc: Services, told: Sequence[NodeName]) -> str | None:
        """One is enough; another one is asked where that one is lost meanwhile, as a second token would part them."""
        look = Program("swarm_peers", {"folder": self.site.folder.swarm}, sudo=True, timeout_s=JOIN_TIMEOUT_S)
        for node in told:
            found = within(GATHER_S, [node], lambda each: svc.nodes[each].call(look)["token"])
            if token := found.get(node):
                return str(token)
        return None

    def _look(self, svc: Services, node: NodeName) -> tuple[str, bool]:
        return self._address(svc, node), svc.survey.ask(node, self.site.swarm_question)["has_token"]

    def _address(self, svc: Services, node: NodeName) -> str:
        return self.site.link(self.site.facts(svc, node), node).address

    def _peers(self) -> Mapping[str, Any]:
        """All nodes in the run's order; one that has not said its address to us may have said it to the others."""
        nodes = {str(node): self._addresses.get(node) for node in self.site.topology.nodes}
        return {"run": str(self.site.run), "nodes": nodes}

    def _introduce(self, svc: Services, node: NodeName, token: Secret) -> None:
        """Tell a node who the others are now."""
        args = {"folder": self.site.folder.swarm, "peers": self._peers()}
        svc.nodes[node].call(
            Program("swarm_peers", args, secrets={"swarm_token": token}, sudo=True, timeout_s=JOIN_TIMEOUT_S)
        )

    def _start(self, svc: Services, node: NodeName, manifest: Manifest, *more: DetachedJob) -> None:
        """Introduce a node to the others and start its share, unless that runs, and `more` jobs in one round trip."""
        if self._token is None:
            raise ValueError("nobody is a member yet")
        with self._lock:
            self._sharing.add((node, manifest.repo))  # first, so that whoever joins meanwhile is told to this one too
        # The share last: others ask it when this node has something, which takes the fetch some time.
        jobs = [*more, self._share_job(node, manifest, self._token)]
        args = {
            "folder": self.site.folder.swarm,
            "peers": self._peers(),
            "jobs": [{**job.start_args(), "secrets": list(job.secrets)} for job in jobs],
        }
        svc.nodes[node].call(
            Program(
                "swarm_join",
                args,
                secrets={name: secret for job in jobs for name, secret in job.secrets.items()},
                includes=("job", *(job.entry for job in jobs)),
                sudo=True,
                timeout_s=JOIN_TIMEOUT_S,
            )
        )

    def _share_job(self, node: NodeName, manifest: Manifest, token: Secret) -> DetachedJob:
        args = {
            "run": str(self.site.run),
            "node": str(node),
            "host": self._addresses[node],
            "ports": self._ports(manifest),
            "peers_file": self.site.folder.peers,
            "hf_home": self.site.profile.storage.hf_home,
            "manifest": manifest.as_dict(),
            "fetch_folder": f"{self.site.folder.jobs}/{self._job(manifest, 'weights-fetch')}",
            "linger_s": LINGER_S,
            "slots": None,
        }
        return DetachedJob(
            node=node,
            id=f"{self.site.run}-{self._job(manifest, 'weights-share')}",
            folder=self._share_folder(manifest),
            entry="share",
            args=args,
            silent_s=0.0,  # nobody follows it
            timeout_s=0.0,
            secrets={"swarm_token": token},
        )

    def _ports(self, manifest: Manifest) -> list[int]:
        return list(self.site.profile.network.weights_ports(is_draft=self.site.is_draft(manifest)))

    def _job(self, manifest: Manifest, name: str) -> str:
        return job_name(name, is_draft=self.site.is_draft(manifest))

    def _share_folder(self, manifest: Manifest) -> str:
        return f"{self.site.folder.jobs}/{self._job(manifest, 'weights-share')}"
