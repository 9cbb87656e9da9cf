"""HTTP answers by method and URL, told in advance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from k3deploy.contracts import HttpResponse
from k3deploy.domain.errors import K3Error
from k3deploy.domain.names import NodeName
from k3deploy.testing.unscripted import Unscripted


@dataclass(frozen=True)
class Request:
    method: str
    url: str
    via: NodeName
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 0.0


Answer = HttpResponse | K3Error | Callable[[Request], HttpResponse]


class FakeHttp:
    """`on("GET", url, answer, ...)`: several answers are given in turn, and the last one from then on."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self.requests: list[Request] = []

    def on(self, method: str, url: str, *answers: Answer) -> None:
        if not answers:
            raise ValueError("say at least one answer")
        self._answers[method, url] = list(answers)

    def request(
        self,
        method: str,
        url: str,
        *,
        via: NodeName,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float,
    ) -> HttpResponse:
        asked = Request(method, url, via, dict(headers or {}), body, timeout_s)
        self.requests.append(asked)
        answers = self._answers.get((method, url))
        if answers is None:
            raise Unscripted(f"no answer was scripted for {method} {url} via {via}")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, K3Error):
            raise answer
        return answer if isinstance(answer, HttpResponse) else answer(asked)


def text(body: str, *, status: int = 200) -> HttpResponse:
    """A plain response with this body."""
    return HttpResponse(status, {}, body.encode())
