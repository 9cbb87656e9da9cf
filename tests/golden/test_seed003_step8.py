"""The launch of h100x32 is what the published walk-through runs, but for the rows of docs/reference/differences.md."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from k3deploy.adapters import profiles
from k3deploy.domain.launch.base import Address, Launch
from k3deploy.domain.launch.render import image_reference, render
from k3deploy.domain.names import NodeName
from tests.golden.made import cluster

_ROOT = Path(__file__).parents[2]
_STEP8: dict[str, Any] = json.loads((Path(__file__).parent / "seed003_step8.json").read_text("utf-8"))
_ALLOWED_KINDS = {
    "token",
    "image digest",
    "offline mode",
    "name or path",
    "bind address",
    "HCA-derived NCCL settings",
}
_DIGEST = "sha256:" + "a" * 64


@dataclass(frozen=True)
class Row:
    """One row of the table: a difference that is allowed. `published` and `ours` are "-" for absent."""

    what: str
    name: str
    published: str
    ours: str
    when: str
    kind: str


@dataclass(frozen=True)
class Difference:
    what: str
    name: str
    is_published: bool
    is_ours: bool


def _rows() -> list[Row]:
    text = (_ROOT / "docs" / "reference" / "differences.md").read_text("utf-8")
    lines = re.findall(r"^\| (option|variable|flag|image) \|(.*)\|$", text, re.MULTILINE)
    return [Row(what, *(cell.strip().strip("`") for cell in rest.split("|"))) for what, rest in lines]


def _published(rank: int, head: str, here: str, nic: str) -> dict[str, Counter[tuple[str, str | None]]]:
    """Step 8 as one node runs it, its shell variables filled in."""
    values = {"$RANK": str(rank), "$SELF_PRIV": here, "$HEAD_PRIV": head, "$NIC": nic}

    def filled(value: str | None) -> str | None:
        for name, text in values.items():
            value = value.replace(name, text) if value else value
        return value

    return {
        "option": Counter((name, filled(value)) for name, value in _STEP8["docker_options"]),
        "variable": Counter((name, filled(value)) for name, value in _STEP8["environment"]),
        "flag": Counter((name, filled(value)) for name, value in _STEP8["flags"]),
        "image": Counter([("", _STEP8["image"])]),
    }


def _ours(launch: Launch) -> dict[str, Counter[tuple[str, str | None]]]:
    """Read back from the argv that docker gets, not from the parts it was made of."""
    words = list(launch.argv)
    assert words[:2] == ["docker", "run"]
    program = words.index(launch.image) + 1
    options = Counter[tuple[str, str | None]]()
    variables = Counter[tuple[str, str | None]]()
    rest = words[2 : program - 1]
    while rest:
        name = rest.pop(0)
        value = rest.pop(0) if rest and not rest[0].startswith("-") else None
        if name == "--env":
            assert value is not None
            variable, _, text = value.partition("=")
            variables[variable, text] += 1
        else:
            options[name, value] += 1
    assert words[program : program + 2] == _STEP8["program"]
    flags = Counter[tuple[str, str | None]]()
    rest = words[program + 2 :]
    while rest:
        name = rest.pop(0)
        assert name.startswith("--")
        flags[name, rest.pop(0) if rest and not rest[0].startswith("--") else None] += 1
    image = Counter[tuple[str, str | None]]([("", launch.image)])
    return {"option": options, "variable": variables, "flag": flags, "image": image}


def _differences(launch: Launch, head: str, here: str, nic: str) -> Iterator[Difference]:
    published, ours = _published(launch.node_rank, head, here, nic), _ours(launch)
    for what, theirs in published.items():
        gone, new = theirs - ours[what], ours[what] - theirs
        for name in sorted({name for name, _ in [*gone, *new]}):
            yield Difference(what, name, any(n == name for n, _ in gone), any(n == name for n, _ in new))


_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "as shipped": {},
    "with a digest": {"digest": _DIGEST},
    "by path": {"settings": ["engine.launch_by=path"]},
    "public": {"settings": ["network.api=public"], "key_file": "/ephemeral/k3deploy/r/engine.yaml"},
    "with RDMA": {"hcas": ("mlx5_0", "mlx5_1")},
}


def _launches(variant: Mapping[str, Any]) -> list[tuple[Launch, Address, Address]]:
    """Each rank's launch with the head's address and its own."""
    profile = profiles.load_profile("h100x32", variant.get("settings", ()))
    topology, addresses = cluster(profile)
    addresses = {node: replace(address, hcas=variant.get("hcas", ())) for node, address in addresses.items()}
    image = image_reference(profile.engine, variant.get("digest"))
    launches = render(profile, topology, addresses, image=image, key_file=variant.get("key_file"))
    head = addresses[NodeName("gpu-01")]
    return [(launch, head, addresses[launch.node]) for launch in launches]


@pytest.mark.parametrize("name", _VARIANTS)
def test_only_listed_differences(name: str) -> None:
    rows = _rows()
    launches = _launches(_VARIANTS[name])
    assert len(launches) == _STEP8["nodes"]
    for launch, head, here in launches:
        for found in _differences(launch, head.private_address, here.private_address, here.private_interface):
            assert any(
                (row.what, row.name) == (found.what, found.name)
                and (row.published != "-") == found.is_published
                and (row.ours != "-") == found.is_ours
                for row in rows
            ), f"{name}, node_rank {launch.node_rank}: {found} is not in docs/reference/differences.md"


def test_every_listed_difference_is_of_an_allowed_kind_and_is_shown_by_some_launch() -> None:
    shown = {
        (found.what, found.name, found.is_published, found.is_ours)
        for variant in _VARIANTS.values()
        for launch, head, here in _launches(variant)
        for found in _differences(launch, head.private_address, here.private_address, here.private_interface)
    }
    rows = _rows()
    assert {row.kind for row in rows} == _ALLOWED_KINDS
    for row in rows:
        assert (row.what, row.name, row.published != "-", row.ours != "-") in shown, row


def test_values_of_the_differences() -> None:
    """The table says in words what these are exactly."""

    def parts(variant: str, rank: int) -> dict[str, Counter[tuple[str, str | None]]]:
        return _ours(_launches(_VARIANTS[variant])[rank][0])

    assert ("HF_HUB_OFFLINE", "1") in parts("as shipped", 0)["variable"]
    assert ("--host", "10.0.0.13") in parts("as shipped", 2)["flag"]
    assert parts("with a digest", 0)["image"] == Counter([("", f"lmsysorg/sglang@{_DIGEST}")])
    by_path = parts("by path", 0)["flag"]
    snapshot = "models--moonshotai--Kimi-K3/snapshots/9f62e4e9fffbd0a83ddd60e1c209d828994b3569"
    assert ("--model-path", f"/root/.cache/huggingface/hub/{snapshot}") in by_path
    assert ("--served-model-name", "moonshotai/Kimi-K3") in by_path
    assert ("NCCL_IB_HCA", "=mlx5_0,mlx5_1") in parts("with RDMA", 1)["variable"]
    assert ("--device", "/dev/infiniband") in parts("with RDMA", 1)["option"]


def test_public_api_binds_the_head_only_and_keeps_the_key_out_of_sight() -> None:
    head, follower = (_ours(_launches(_VARIANTS["public"])[rank][0]) for rank in (0, 1))
    assert ("--host", "0.0.0.0") in head["flag"]
    assert ("--config", "/etc/k3deploy/engine.yaml") in head["flag"]
    assert ("-v", "/ephemeral/k3deploy/r/engine.yaml:/etc/k3deploy/engine.yaml:ro") in head["option"]
    assert ("--host", "10.0.0.12") in follower["flag"]
    assert not any(name == "--config" for name, _ in follower["flag"])
    assert not any(name == "--api-key" for name, _ in head["flag"] + follower["flag"])


def test_order_is_that_of_the_published_launch() -> None:
    launch = _launches(_VARIANTS["as shipped"])[0][0]
    assert [option.name for option in launch.docker_options] == [name for name, _ in _STEP8["docker_options"]]
    assert [flag.name for flag in launch.flags] == [name for name, _ in _STEP8["flags"]]
    names = [variable.name for variable in launch.environment]
    assert names == ["HF_HUB_OFFLINE", *(name for name, _ in _STEP8["environment"][1:])]


def test_one_node_without_an_active_port_keeps_its_replica_on_ethernet() -> None:
    profile = profiles.load_profile("h100x32")
    topology, addresses = cluster(profile)
    hcas = {node: replace(a, hcas=() if node == "gpu-03" else ("mlx5_0",)) for node, a in addresses.items()}
    for launch in render(profile, topology, hcas, image="i"):
        variables = {variable.name: variable for variable in launch.environment}
        assert "NCCL_IB_HCA" not in variables
        assert variables["NCCL_IB_DISABLE"].source == "node:gpu-03 has no active RDMA port"
