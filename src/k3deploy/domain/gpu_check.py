"""Whether a node has the GPUs that the profile counts on, well and free, and whether Docker can hand them out. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from k3deploy.domain.docker_facts import DockerFound
from k3deploy.domain.errors import EngineError
from k3deploy.domain.facts import GpuFound, NodeFacts
from k3deploy.domain.findings import Finding
from k3deploy.domain.profile.models import Hardware

# A GPU that nobody uses still shows a few MiB; the engine checks that its GPUs are about equally free (SGLang 0.5.23).
FREE_SHARE: Final = 0.02


def findings(
    facts: NodeFacts, docker: DockerFound, hardware: Hardware, our_container: str | None
) -> tuple[Finding, ...]:
    """`our_container`: id of the running container that is provably this run's; what it holds is not in the way."""
    present = list(_present(facts, hardware))
    if present and facts.gpus is not None and not facts.gpus:
        return tuple(present)  # without a GPU there is nothing more to say about them
    return (*present, *_kind(facts, hardware), *_occupied(facts, our_container), *_runtime(docker))


def _present(facts: NodeFacts, hardware: Hardware) -> Iterator[Finding]:
    if facts.gpus is None:
        yield Finding(
            "nvidia-smi gives no usable answer",
            why=facts.why("gpus"),
            fix="run `nvidia-smi` on the node; if it hangs or fails there too, reboot it or have it replaced",
        )
        return
    words = facts.nvidia_smi_words
    if facts.nvidia_smi_exit_code is None:
        yield Finding(
            "no GPU: there is no nvidia-smi",
            why=facts.why("gpus"),
            fix="install the NVIDIA driver, or choose the provider's image that has it",
            wanted=f"{hardware.gpus_per_node} GPUs",
        )
        return
    if facts.nvidia_smi_exit_code != 0:
        yield Finding(
            f"nvidia-smi ended with {facts.nvidia_smi_exit_code}",
            why=words or "it said nothing",
            fix="a reboot may help once; if it does not, have the provider replace this node",
            found=f"{len(facts.gpus)} GPUs listed",
            wanted=f"{hardware.gpus_per_node} GPUs, and exit code 0",
            error=EngineError,
        )
    if len(facts.gpus) != hardware.gpus_per_node:
        on_bus = f", {facts.pci_gpus} on the PCI bus" if facts.pci_gpus else ""
        yield Finding(
            f"{len(facts.gpus)} of {hardware.gpus_per_node} GPUs",
            why="the tensor-parallel size is fixed by the model: fewer GPUs cannot hold it",
            fix="have the provider replace this node; a reboot may bring a lost GPU back once"
            if len(facts.gpus) < hardware.gpus_per_node
            else "use the profile that belongs to these machines",
            found=f"{len(facts.gpus)} in nvidia-smi{on_bus}",
            wanted=f"{hardware.gpus_per_node}",
        )


def _kind(facts: NodeFacts, hardware: Hardware) -> Iterator[Finding]:
    gpu = hardware.gpu
    gpus = facts.gpus or ()
    small = [each for each in gpus if (each.memory_total_mib or 0) < gpu.memory_mib_min]
    if small:
        yield Finding(
            f"{_which(small, len(gpus))}: too little memory",
            why="what counts is the memory that the node reports, not the GPU's name",
            fix="use the profile that belongs to these machines",
            found=", ".join(sorted({f"{each.name}, {each.memory_total_mib} MiB" for each in small})),
            wanted=f"at least {gpu.memory_mib_min} MiB",
        )
        return
    other = sorted({each.name for each in gpus if each.name not in gpu.names})
    if other:
        yield Finding(
            f"its GPUs are {', '.join(other)}, which the profile does not name",
            fix="nothing to do: their memory is enough",
            is_warning=True,
        )
    if len({each.name for each in gpus}) > 1:
        yield Finding(
            "its GPUs are not all of one kind",
            why="the slowest one sets the pace, and the engine asks for about equal memory",
            fix="have the provider replace this node",
            found=", ".join(sorted({each.name for each in gpus})),
        )


def _occupied(facts: NodeFacts, our_container: str | None) -> Iterator[Finding]:
    gpus = facts.gpus or ()
    processes = facts.gpu_processes or ()
    foreign = [each for each in processes if our_container is None or each.container != our_container]
    by_uuid = {each.uuid: each for each in gpus}
    taken = [
        each
        for each in gpus
        if each.memory_used_mib is not None
        and each.memory_total_mib
        and each.memory_used_mib > each.memory_total_mib * FREE_SHARE
    ]
    if our_container is not None:
        # Our engine fills its GPUs; then only a process of somebody else tells that one is shared.
        taken = [each for each in taken if any(process.gpu_uuid == each.uuid for process in foreign)]
    if not taken:
        return
    holders = [
        f"pid {each.pid} ({each.name}{_container(each.container)}) {each.used_mib or '?'} MiB"
        f" on GPU {by_uuid[each.gpu_uuid].index if each.gpu_uuid in by_uuid else '?'}"
        for each in foreign
    ]
    yield Finding(
        f"{_which(taken, len(gpus))} already in use",
        why="the engine needs all of each GPU's memory, and about the same on every one",
        fix="end what is yours there; if nothing shows, a reboot frees memory that a dead process left",
        found="; ".join(holders) or ", ".join(f"GPU {each.index}: {each.memory_used_mib} MiB" for each in taken),
        wanted=f"less than {FREE_SHARE:.0%} of the memory used",
    )


def _runtime(docker: DockerFound) -> Iterator[Finding]:
    if docker.info is not None and not docker.gives_gpus:
        yield Finding(
            "Docker cannot hand out GPUs",
            why="it has no nvidia runtime, no nvidia hook and no CDI devices; `docker run --gpus all` would fail",
            fix="install nvidia-container-toolkit, then `sudo nvidia-ctk runtime configure --runtime=docker` and "
            "`sudo systemctl restart docker`",
            found=f"runtimes: {', '.join(docker.info.runtimes)}",
            wanted="nvidia",
        )


def _which(gpus: Sequence[GpuFound], count: int) -> str:
    if len(gpus) == count > 1:
        return f"all {count} GPUs"
    return f"GPU {', '.join(str(each.index) for each in gpus)}"


def _container(container: str | None) -> str:
    return f" in container {container[:12]}" if container else ""
