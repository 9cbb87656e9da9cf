"""Registering the commands must stay cheap: what reads YAML or talks to the world is imported by the call itself."""

import subprocess
import sys

_PROGRAM = """
import sys
from k3deploy.cli import app
app.register_commands()
heavy = {"yaml", "pydantic", "boto3", "paramiko", "huggingface_hub", "rich"} & sys.modules.keys()
print(sorted(heavy))
"""


def test_registering_every_command_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
