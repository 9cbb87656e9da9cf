"""What the engine's phases share: which launches belong to a replica here and now, and what is asked about them."""

from dataclasses import dataclass

from k3deploy.contracts import Services
from k3deploy.domain.command import Question
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.launch.container import CONTAINER_NAME
from k3deploy.domain.launch.render import image_reference, render_replica
from k3deploy.domain.names import NodeName
from k3deploy.domain.profile.models import Pool
from k3deploy.domain.steps import Target
from k3deploy.domain.topology import Replica
from k3deploy.phases.node_site import NodeSite
from k3deploy.phases.on_each import ask_each

# With attention data parallelism rank 0 also listens on the six ports after the rendezvous port
# (tokenizer, detokenizer, rpc, metrics, scheduler input, load collector; SGLang 0.5.23).
_EXTRA_PORTS = 6


@dataclass(frozen=True)
class EngineSite(NodeSite):
    """The same run as its nodes' phases see it, by replica."""

    @property
    def is_public(self) -> bool:
        return self.profile.network.api == "public"

    @property
    def model_id(self) -> str:
        """The name under which the engine serves the model."""
        model = self.profile.model
        return model.repo if self.profile.engine.launch_by == "name" else model.served_name or model.repo

    def replica(self, target: Target) -> Replica:
        return self.topology.replica(target.name)

    def pool(self, replica: Replica) -> Pool:
        return self.profile.pool(replica.pool)

    def context_tokens(self, replica: Replica) -> int | None:
        """What /v1/models must report; None where a flag gives it in a form that only the engine resolves."""
        flags = {**self.profile.engine.flags, **self.pool(replica).flags}
        asked = flags.get("context-length")
        if asked is None:
            return self.profile.model.context_tokens
        return asked if isinstance(asked, int) else None

    def ports(self, replica: Replica, node: NodeName) -> tuple[int, ...]:
        """What the engine listens on there. Followers have a stand-in health server on the API's port."""
        network = self.profile.network
        if node != replica.head.node or len(replica.ranks) == 1:
            return (network.api_port,)
        extra = _EXTRA_PORTS if self.pool(replica).replicas.parallel.attention_data > 1 else 0
        return (network.api_port, *range(network.rendezvous_port, network.rendezvous_port + extra + 1))

    @property
    def container_question(self) -> Question:
        network = self.profile.network
        ports = [network.api_port, *range(network.rendezvous_port, network.rendezvous_port + _EXTRA_PORTS + 1)]
        return Question.of("container", name=CONTAINER_NAME, folder=self.folder.path, ports=ports)

    @property
    def engine_question(self) -> Question:
        key = {"key_file": self.folder.api_key} if self.is_public else {}
        return Question.of("engine", name=CONTAINER_NAME, folder=self.folder.path, **key)

    def address(self, svc: Services, node: NodeName) -> Address:
        """Raises NodeError where the node has no private address, or several."""
        facts = self.facts(svc, node)
        link = self.link(facts, node)
        return Address(node, link.address, link.interface, facts.active_hcas)

    def image_reference(self, svc: Services) -> str:
        """By digest once the run has settled one."""
        pin = self.image_pin(svc)
        return image_reference(self.profile.engine, pin.digest if pin else None)

    def launches(self, svc: Services, replica: Replica) -> tuple[Launch, ...]:
        """One for each rank, the head's first."""
        ask_each(svc, replica.nodes, self.facts_question)
        return render_replica(
            self.profile,
            replica,
            {node: self.address(svc, node) for node in replica.nodes},
            image=self.image_reference(svc),
            key_file=self.folder.api_key if self.is_public else None,
        )

    def api_url(self, svc: Services, replica: Replica) -> str:
        """Where the head's API answers from inside the private network."""
        head = replica.head.node
        return f"http://{self.link(self.facts(svc, head), head).host}:{self.profile.network.api_port}"
