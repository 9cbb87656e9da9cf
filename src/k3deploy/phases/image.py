"""Image: the same digest on every node, for the node's architecture, with an engine inside that the profile allows.

The tag is resolved once per run, by the first node that comes by; from then on the digest is required everywhere.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from k3deploy.contracts import Progress, Services
from k3deploy.domain import cuda_requirement
from k3deploy.domain.command import Program, Question
from k3deploy.domain.docker_facts import ImageFound
from k3deploy.domain.engine_check import EngineChecked, check_engine
from k3deploy.domain.errors import NodeError
from k3deploy.domain.facts import NodeFacts
from k3deploy.domain.findings import Finding, verdict
from k3deploy.domain.image_ref import (
    ENGINE_VERSION_PIN,
    IMAGE_PIN,
    ImagePin,
    digest_of_repository,
    machine_of,
    wanted_image,
)
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.launch.render import render_replica
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.phases.detached import DetachedJob, follow_job
from k3deploy.phases.node_site import NodeSite

RESOLVE_TIMEOUT_S: Final = 90.0
VERSION_TIMEOUT_S: Final = 600.0
# The daemon says nothing while it waits for a slow registry or unpacks one big layer on a slow disk.
SILENCE_S: Final = 300.0


@dataclass(frozen=True)
class ImageSeen:
    """`pin` is the run's, or the one that would be settled; `is_settled` tells which."""

    node: NodeName
    facts: NodeFacts
    pin: ImagePin
    is_settled: bool
    local: ImageFound | None
    engine_version: str | None
    has_engine_version: bool


@dataclass(frozen=True)
class SettleImage:
    """Write the digest to the run's pins. Another node may have been first: then its value counts."""

    pin: ImagePin

    def perform(self, svc: Services, progress: Progress) -> None:
        settled = ImagePin.from_dict(svc.pins.settle(IMAGE_PIN, self.pin.as_dict()))
        progress(f"{settled.asked} is {settled.short_digest}")


@dataclass(frozen=True)
class PullImage:
    """Pull what the run settled on, detached: the pull goes on when the connection is lost."""

    node: NodeName
    run: str
    folder: str
    image_bytes: int
    timeout_s: float

    def perform(self, svc: Services, progress: Progress) -> None:
        pin = _settled(svc)
        job = DetachedJob(
            node=self.node,
            id=f"{self.run}-image-pull",
            folder=f"{self.folder}/image-pull",
            entry="image_pull",
            args={
                "reference": pin.reference,
                "image_bytes": self.image_bytes,
                "silence_s": SILENCE_S,
                "run_dir": posixpath.dirname(self.folder),
            },
            # Longer than the pull's own limit, so that its own words come first.
            silent_s=SILENCE_S + 60,
            timeout_s=self.timeout_s,
            user="root",
        )
        follow_job(svc, job, progress)


@dataclass(frozen=True)
class ReadEngineVersion:
    """Run the image's python3 once and settle what it says, unless another node already did."""

    node: NodeName
    run: str
    package: str

    def perform(self, svc: Services, progress: Progress) -> None:
        pin = _settled(svc)
        if _version_of(svc, pin.digest)[1]:
            return
        progress(f"asking the image for its {self.package}")
        args = {
            "reference": pin.reference,
            "package": self.package,
            "name": f"k3deploy-{self.run}-version",
        }
        answer = svc.nodes[self.node].call(Program("image_version", args, sudo=True, timeout_s=VERSION_TIMEOUT_S))
        svc.pins.settle(ENGINE_VERSION_PIN, {"digest": pin.digest, "version": answer["version"]})


@dataclass(frozen=True)
class ImagePhase:
    site: NodeSite
    option_lists: OptionLists

    @property
    def name(self) -> PhaseName:
        return PhaseName("image")

    @property
    def title(self) -> str:
        return "Pull the engine's image"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("storage"),)

    def targets(self) -> Sequence[Target]:
        return self.site.targets()

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.image_question(svc)))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        pin = self.site.image_pin(svc)
        engine = self.site.profile.engine
        return digest_of(
            identity=self.site.identity(svc, target.nodes[0]),
            image=pin.reference if pin else wanted_image(engine).text,
            versions=engine.versions,
        )

    def probe(self, svc: Services, target: Target) -> ImageSeen:
        """Asks the registry which digest the name stands for, unless the run has settled that."""
        node = target.nodes[0]
        local = self.site.image(svc, node)
        settled = self.site.image_pin(svc)
        pin = settled or self._resolve(svc, node, has_local=local is not None)
        if local is not None and digest_of_repository(pin.repository, local.digests) != pin.digest:
            local = None  # an image that has the tag's name here, and is not what the tag stands for
        version, is_known = _version_of(svc, pin.digest)
        return ImageSeen(
            node=node,
            facts=self.site.facts(svc, node),
            pin=pin,
            is_settled=settled is not None,
            local=local,
            engine_version=version,
            has_engine_version=is_known,
        )

    def plan(self, target: Target, seen: ImageSeen) -> Plan:
        """Raises NodeError for an image of another architecture, EngineError for an engine that does not fit."""
        check_platform(seen.node, seen.pin, seen.facts.architecture)
        if seen.has_engine_version:
            self._check_engine(seen.node, seen.engine_version, seen.pin)
        profile = self.site.profile
        steps = []
        if not seen.is_settled:
            steps.append(
                Step(
                    f"settle on {seen.pin.short_digest} for {_named(seen.pin)}",
                    SettleImage(seen.pin),
                    detail=f"resolved now; every node of this run must have exactly {seen.pin.digest}",
                )
            )
        if seen.local is None:
            steps.append(
                Step(
                    f"pull {seen.pin.repository} at {seen.pin.short_digest}",
                    PullImage(
                        node=seen.node,
                        run=str(self.site.run),
                        folder=self.site.folder.jobs,
                        image_bytes=profile.storage.image_bytes,
                        timeout_s=profile.timeouts.image_pull_s,
                    ),
                )
            )
        if not seen.has_engine_version:
            steps.append(
                Step(
                    f"read the version of {profile.engine.name} out of the image",
                    ReadEngineVersion(seen.node, str(self.site.run), profile.engine.name),
                )
            )
        if not steps:
            return Plan.noop(f"{seen.pin.reference} is there")
        return Plan.of(*steps)

    def verify(self, svc: Services, target: Target) -> Verdict:
        """Raises EngineError for an engine that does not fit."""
        node = target.nodes[0]
        pin = self.site.image_pin(svc)
        local = self.site.image(svc, node)
        if pin is None or local is None:
            wanted = pin.reference if pin else self.site.profile.engine.image
            return Verdict.bad(f"{wanted} is not there", fix="run the same command again: it pulls what is missing")
        facts = self.site.facts(svc, node)
        if machine_of(local.architecture) != facts.architecture:
            return Verdict.bad(
                f"{pin.reference} is built for {local.architecture}, this node is {facts.architecture}",
                fix=_other_tag(facts.architecture),
                found=f"{local.os}/{local.architecture}",
                wanted=facts.architecture,
            )
        version, is_known = _version_of(svc, pin.digest)
        if not is_known:
            return Verdict.bad(
                "the engine's version was not read out of the image yet", fix="run the same command again"
            )
        checked = self._check_engine(node, version, pin)
        return verdict(
            f"{self.site.profile.engine.name} {checked.version}, {checked.options}",
            self._warnings(facts, local, checked),
            image=pin.reference,
            image_id=local.id,
            engine_version=checked.version,
            options=checked.options,
        )

    def _resolve(self, svc: Services, node: NodeName, *, has_local: bool) -> ImagePin:
        wanted = wanted_image(self.site.profile.engine)
        if wanted.digest is not None and has_local:
            return ImagePin(wanted.text, wanted.repository, wanted.digest)  # nothing to ask a registry for
        program = Program("image_resolve", {"reference": wanted.text}, sudo=True, timeout_s=RESOLVE_TIMEOUT_S)
        found: Mapping[str, Any] = svc.nodes[node].call(program)
        return ImagePin(wanted.text, wanted.repository, found["digest"], tuple(found["platforms"]))

    def _check_engine(self, node: NodeName, version: str | None, pin: ImagePin) -> EngineChecked:
        launches = self._launches(node, pin)
        return check_engine(self.site.profile.engine, version, launches, self.option_lists)

    def _launches(self, node: NodeName, pin: ImagePin) -> tuple[Launch, ...]:
        """The launches of the node's replica as far as their options go: addresses are not looked at here."""
        replica = self.site.topology.replica_of(node)
        addresses = {each: Address(each, "192.0.2.1", "eth0") for each in replica.nodes}
        key_file = self.site.folder.api_key if self.site.profile.network.api == "public" else None
        return render_replica(self.site.profile, replica, addresses, image=pin.reference, key_file=key_file)

    def _warnings(self, facts: NodeFacts, local: ImageFound, checked: EngineChecked) -> list[Finding]:
        found = [Finding(each, fix="see the engine's release notes", is_warning=True) for each in checked.warnings]
        drivers = sorted({gpu.driver for gpu in facts.gpus or ()})
        for driver in drivers:
            requirement = cuda_requirement.unmet(local.requires, driver)
            if requirement is not None:
                # A data-centre GPU may still run it by forward compatibility, so this is no error.
                found.append(
                    Finding(
                        f"the image asks for {requirement}, the driver is {driver}",
                        fix="if the container exits with an unsatisfied condition, use the image's tag for older "
                        "drivers (cu12), or a node image with a newer driver",
                        is_warning=True,
                    )
                )
        return found


def check_platform(node: NodeName, pin: ImagePin, architecture: str) -> None:
    """Raise NodeError when the registry says that the image is not for this node's architecture."""
    machines = {machine_of(platform.rpartition("/")[2]) for platform in pin.platforms}
    if machines and architecture not in machines:
        raise NodeError(
            what=f"{node}: {pin.asked} is not built for {architecture}",
            why="an image of another architecture ends with `exec format error`",
            fix=_other_tag(architecture),
            context={"node": node, "found": ", ".join(pin.platforms), "wanted": f"linux for {architecture}"},
        )


def _other_tag(architecture: str) -> str:
    return f"set `engine.image` in the profile to a tag that is built for {architecture}, or for several architectures"


def _named(pin: ImagePin) -> str:
    """What was asked for, without a digest that is said anyway."""
    return pin.asked.partition("@")[0]


def _settled(svc: Services) -> ImagePin:
    """The run's image; the step before this one has settled it."""
    pinned = svc.pins.get(IMAGE_PIN)
    if pinned is None:
        raise LookupError("no image was settled")
    return ImagePin.from_dict(pinned)


def _version_of(svc: Services, digest: str) -> tuple[str | None, bool]:
    """The engine's version in the image of this digest, and whether anybody has read it yet."""
    pinned = svc.pins.get(ENGINE_VERSION_PIN)
    if pinned is None or pinned["digest"] != digest:
        return None, False
    return pinned["version"], True
