"""The lab's nvidia-smi: the formats of published outputs, and memory as the engines of a node report it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import checkpoint
from tests.lab.engine_process import EngineProcess, free_port, lay_out_cache

PROGRAM = Path(__file__).resolve().parents[1] / "lab" / "nvidia_smi.py"
H100 = {"count": 8, "name": "NVIDIA H100 PCIe", "memory_total_mib": 81_559, "driver": "580.95.05", "faults": {}}


class Node:
    """A node's GPUs, and calls of the program there."""

    def __init__(self, folder: Path) -> None:
        self._config = folder / "gpus.json"
        self._proc = folder / "proc"
        self._proc.mkdir()
        self.has(**H100)

    def has(self, **config: Any) -> None:
        self._config.write_text(json.dumps(config))

    def smi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run(*arguments, LAB_PROC=str(self._proc))

    def smi_with_engines(self, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Looks at all processes; an engine's root is this machine's, and its state file at this path in it."""
        return self._run(*arguments, LAB_STATE=str(state).lstrip("/"))

    def _run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", str(PROGRAM), *arguments]
        env = {**os.environ, "LAB_GPUS": str(self._config), **env}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_the_query_of_the_walk_through(node: Node) -> None:
    done = node.smi("--query-gpu=index,name,memory.total", "--format=csv")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "index, name, memory.total [MiB]",
        *(f"{index}, NVIDIA H100 PCIe, 81559 MiB" for index in range(8)),
    ]


def test_without_header_and_units(node: Node) -> None:
    fields = "index,memory.used,memory.free,driver_version,compute_cap,pci.bus_id,ecc.mode.current"
    done = node.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    assert done.stdout.splitlines()[0] == "0, 4, 81555, 580.95.05, 9.0, 00000000:10:00.0, Enabled"


def test_lists_gpus_with_lasting_names(node: Node) -> None:
    lines = node.smi("-L").stdout.splitlines()
    assert len(lines) == 8
    found = [re.fullmatch(r"GPU (\d): NVIDIA H100 PCIe \(UUID: (GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\)", line)
             for line in lines]  # fmt: skip
    assert len({match[2] for match in found if match}) == 8
    assert node.smi("-L").stdout.splitlines() == lines
    uuids = node.smi("--query-gpu=uuid", "--format=csv,noheader").stdout.splitlines()
    assert [match[2] for match in found if match] == uuids


def test_one_gpu_by_its_index(node: Node) -> None:
    assert node.smi("-i", "3", "--query-gpu=index", "--format=csv,noheader").stdout == "3\n"
    assert node.smi("-i", "9", "-L").returncode == 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--query-gpu=index,foo", "--format=csv"), 2, 'Field "foo" is not a valid field to query.'),
        (("--query-compute-apps=pid,foo", "--format=csv"), 2, 'Field "foo" is not a valid field to query.'),
        (("--query-gpu=index",), 2, '"--format=" switch is missing.'),
        (("--no-such-option",), 1, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help."),
    ],
)
def test_wrong_calls(node: Node, arguments: tuple[str, ...], code: int, text: str) -> None:
    done = node.smi(*arguments)
    assert (done.returncode, text in done.stdout) == (code, True)


@pytest.mark.parametrize(
    ("faults", "code", "text"),
    [
        ({"no_driver": True}, 9, "couldn't communicate with the NVIDIA driver"),
        ({"driver_mismatch": True}, 18, "Driver/library version mismatch"),
        ({"lost": [3]}, 15, "Unable to determine the device handle for GPU3: 0000:40:00.0: GPU is lost."),
    ],
)
def test_broken_gpus(node: Node, faults: dict[str, Any], code: int, text: str) -> None:
    node.has(**{**H100, "faults": faults})
    done = node.smi()
    assert (done.returncode, text in done.stdout) == (code, True)


def test_a_lost_gpu_is_missing_from_queries(node: Node) -> None:
    node.has(**{**H100, "faults": {"lost": [3]}})
    done = node.smi("--query-gpu=index", "--format=csv,noheader")
    assert done.stdout.split() == ["0", "1", "2", "4", "5", "6", "7"]
    assert "GPU is lost" in done.stderr
    assert done.returncode == 15


def test_a_node_without_the_file_has_no_driver(node: Node, tmp_path: Path) -> None:
    (tmp_path / "gpus.json").unlink()
    assert node.smi("-L").returncode == 9


def test_an_occupied_gpu_shows_who_holds_it(node: Node) -> None:
    node.has(**{**H100, "faults": {"occupied": {"2": {"mib": 20_000, "pid": 99}}, "ecc": {"1": 3}}})
    used = node.smi("--query-gpu=memory.used", "--format=csv,noheader,nounits").stdout.split()
    assert used == ["4", "4", "20000", "4", "4", "4", "4", "4"]
    apps = node.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader").stdout
    assert apps == "99, 20000 MiB\n"
    errors = node.smi("--query-gpu=ecc.errors.uncorrected.volatile.total", "--format=csv,noheader").stdout.split()
    assert errors[:3] == ["0", "3", "0"]


def test_the_plain_picture(node: Node) -> None:
    lines = node.smi().stdout.splitlines()
    assert "Driver Version: 580.95.05" in lines[2]
    assert "CUDA Version: 13.0" in lines[2]
    assert {len(line) for line in lines[1:] if line} == {91}
    assert any("4MiB / 81559MiB" in line for line in lines)
    assert any("No running processes found" in line for line in lines)


def test_shows_what_an_engine_holds_as_long_as_it_lives(node: Node, tmp_path: Path) -> None:
    state = tmp_path / "engine" / "state.json"
    checkpoint.build(tmp_path / "hub", "small12")
    home = tmp_path / "hf"
    lay_out_cache(home, tmp_path / "hub")
    options = ["--model-path", checkpoint.REPO, "--trust-remote-code", "--tp-size", "8"]
    options += ["--host", "127.0.0.1", "--port", str(free_port())]
    engine = EngineProcess(options, "127.0.0.1", home, state.parent)
    query = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")
    try:
        engine.wait_for("The server is fired up and ready to roll!")
        told = engine.state()["gpus"]
        rows = [line.split(", ") for line in node.smi_with_engines(state, *query).stdout.splitlines()]
        assert rows == [[str(g["pid"]), str(g["used_mib"]), f"sglang::scheduler_TP{g['tp_rank']}"] for g in told]
        engine.signal(signal.SIGTERM)
        engine.wait_for_end()
        assert node.smi_with_engines(state, *query).stdout == ""
    finally:
        engine.end()
