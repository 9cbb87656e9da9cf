"""The real Hub client on a node, where there is no pip: run from the folder to which k3deploy unpacked it."""

import shlex

from tests.lab.node import Node

_CLIENT = "$(ls -d /ephemeral/k3deploy/*/client-* | head -1)"
_HF = "from huggingface_hub.cli.hf import main; main()"


def python(node: Node, code: str, words: str, *, endpoint: str, hf_home: str, timeout_s: float = 300.0) -> str:
    """Run a Python program on a node that can import the client; raises LabError when it fails."""
    env = f"HF_ENDPOINT={endpoint} HF_HOME={hf_home} HF_HUB_DISABLE_UPDATE_CHECK=1 PYTHONPATH={_CLIENT}"
    return node.ssh(f"{env} python3 -c {shlex.quote(code)} {words}", timeout_s=timeout_s).stdout


def hf(node: Node, words: str, *, endpoint: str, hf_home: str, timeout_s: float = 300.0) -> str:
    """Run `hf ...` on a node; raises LabError when it fails."""
    return python(node, _HF, words, endpoint=endpoint, hf_home=hf_home, timeout_s=timeout_s)
