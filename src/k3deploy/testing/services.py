"""A complete set of fake services, of which a test replaces what it cares about."""

from k3deploy.contracts import Cancel, Clock, Http, Hub, Nodes, Pins, Services, Store, Survey
from k3deploy.testing.clock import FakeCancel, FakeClock
from k3deploy.testing.http import FakeHttp
from k3deploy.testing.hub import FakeHub
from k3deploy.testing.node import FakeNodes
from k3deploy.testing.pins import MemoryPins
from k3deploy.testing.store import MemoryStore
from k3deploy.testing.survey import FakeSurvey


def services(
    *,
    nodes: Nodes | None = None,
    survey: Survey | None = None,
    store: Store | None = None,
    pins: Pins | None = None,
    hub: Hub | None = None,
    http: Http | None = None,
    clock: Clock | None = None,
    cancel: Cancel | None = None,
) -> Services:
    """Every fake is empty, so whatever a test forgot to script says so."""
    return Services(
        nodes=nodes or FakeNodes(),
        survey=survey or FakeSurvey(),
        store=store or MemoryStore(),
        pins=pins or MemoryPins(),
        hub=hub or FakeHub(),
        http=http or FakeHttp(),
        clock=clock or FakeClock(),
        cancel=cancel or FakeCancel(),
    )
