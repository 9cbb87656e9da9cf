"""Fakes of every contract, as strict as the real adapters: a call nobody scripted fails, it never invents an answer.

They ship with the package, pass the same contract suites as the real adapters, and are passed in, never patched in.
"""

from k3deploy.testing.clock import FakeCancel, FakeClock
from k3deploy.testing.http import FakeHttp
from k3deploy.testing.hub import FakeHub
from k3deploy.testing.node import FakeNode, FakeNodes, Put
from k3deploy.testing.pins import MemoryPins
from k3deploy.testing.recorder import Recorder
from k3deploy.testing.services import services
from k3deploy.testing.store import MemoryStore
from k3deploy.testing.survey import FakeSurvey
from k3deploy.testing.unscripted import Unscripted
from k3deploy.testing.wheelhouse import FakeWheelhouse

__all__ = [
    "FakeCancel",
    "FakeClock",
    "FakeHttp",
    "FakeHub",
    "FakeNode",
    "FakeNodes",
    "FakeSurvey",
    "FakeWheelhouse",
    "MemoryPins",
    "MemoryStore",
    "Put",
    "Recorder",
    "Unscripted",
    "services",
]
