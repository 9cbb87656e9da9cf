"""`up`: the phases from a bare node to an answer, in the order people read them. What waits for what is in `needs`."""

from k3deploy.flows.session import Outcome, Session, run_phases
from k3deploy.phases.chat import ChatPhase
from k3deploy.phases.client import ClientPhase
from k3deploy.phases.connect import ConnectPhase
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.facts import FactsPhase
from k3deploy.phases.gpus import GpusPhase
from k3deploy.phases.image import ImagePhase
from k3deploy.phases.launch import LaunchPhase
from k3deploy.phases.manifest import ManifestPhase
from k3deploy.phases.node_site import NodeSite
from k3deploy.phases.preflight import PreflightPhase
from k3deploy.phases.reach import ReachPhase
from k3deploy.phases.ready import ReadyPhase
from k3deploy.phases.storage import StoragePhase
from k3deploy.phases.swarm import Swarm
from k3deploy.phases.weights_fetch import WeightsFetchPhase
from k3deploy.phases.weights_site import WeightsSite
from k3deploy.phases.weights_verify import WeightsVerifyPhase
from k3deploy.phases.weights_warm import WeightsWarmPhase
from k3deploy.runner.graph import AnyPhase, closure


def deploy_phases(session: Session) -> tuple[AnyPhase, ...]:
    """All phases of `up`."""
    node, weights, engine = session.site(NodeSite), session.site(WeightsSite), session.site(EngineSite)
    return (
        ConnectPhase(node),
        FactsPhase(node),
        ManifestPhase(node),
        PreflightPhase(node),
        GpusPhase(engine),
        ReachPhase(node),
        StoragePhase(node),
        ImagePhase(node, session.option_lists),
        ClientPhase(node, session.wheelhouse),
        WeightsFetchPhase(weights, session.wheelhouse.lock.id, Swarm(weights)),
        WeightsVerifyPhase(weights),
        WeightsWarmPhase(engine),
        LaunchPhase(engine),
        ReadyPhase(engine),
        ChatPhase(engine),
    )


def deploy(session: Session, *, until: str | None = None, is_dry: bool = False) -> Outcome:
    """Run them, or those that `until` needs. Raises UsageError for an unknown phase name."""
    return run_phases(session, closure(deploy_phases(session), until), flow="up", is_dry=is_dry)
