"""The machines a lab can pretend to rent, by the name of the profile that is run on them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.lab.errors import LabError

DRIVER = "580.95.05"


@dataclass(frozen=True)
class Hardware:
    """Node count and GPUs, as the node's nvidia-smi will report them, and which miniature checkpoint suits it."""

    profile: str
    nodes: int
    gpus_per_node: int
    gpu_name: str
    gpu_memory_mib: int
    variant: str

    def gpus_json(self) -> dict[str, object]:
        """The content of /etc/lab/gpus.json, which the node's nvidia-smi reads at each call."""
        return {
            "count": self.gpus_per_node,
            "name": self.gpu_name,
            "memory_total_mib": self.gpu_memory_mib,
            "driver": DRIVER,
            "faults": {},
        }


# Memory: H100 and GB300 as in public nvidia-smi outputs; B300 268.6 GiB as in the field report of 8 x B300.
ALL = (
    Hardware("lab-h100x32", 4, 8, "NVIDIA H100 PCIe", 81559, "mini"),
    Hardware("lab-b300x8", 1, 8, "NVIDIA B300 SXM6 AC", 275040, "mini"),
    Hardware("lab-gb300-nvl72", 18, 4, "NVIDIA GB300", 284208, "small12"),
)


def hardware(profile: str) -> Hardware:
    for found in ALL:
        if found.profile == profile:
            return found
    names = ", ".join(each.profile for each in ALL)
    raise LabError(f"no lab hardware named {profile!r}", why=f"known: {names}", fix=f"--profile {ALL[0].profile}")
