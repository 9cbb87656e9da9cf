"""Chat: one real request through the head's API, judged. The proof that the endpoint answers, not only that it is up.

The reply is kept as it came on the head node, with the containers that gave it. A later run judges the kept reply
again and asks the engine only for its health (which sends one token through all ranks): as long as those very
containers live, a request of hundreds of tokens at every `up` would prove nothing new for half a minute of paid time.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3deploy.contracts import Progress, Services
from k3deploy.domain import chat
from k3deploy.domain.command import Program, Question
from k3deploy.domain.errors import EngineError
from k3deploy.domain.inputs import digest_of
from k3deploy.domain.launch.readiness import EngineSeen, counts_for, identities, not_serving
from k3deploy.domain.names import InputsDigest, NodeName, PhaseName
from k3deploy.domain.steps import Plan, Step, Target, Verdict
from k3deploy.domain.units import duration_text
from k3deploy.phases.engine_site import EngineSite
from k3deploy.phases.ready import look

# /v1/models is answered by the HTTP side alone.
_MODELS_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class ChatPhase:
    site: EngineSite

    @property
    def name(self) -> PhaseName:
        return PhaseName("chat")

    @property
    def title(self) -> str:
        return "Ask the endpoint a question and judge the answer"

    @property
    def needs(self) -> tuple[PhaseName, ...]:
        return (PhaseName("ready"),)

    def targets(self) -> Sequence[Target]:
        """Replicas that serve whole requests: prefill and decode replicas answer only together, behind a router."""
        return [replica.target for replica in self.site.topology.replicas if replica.role == "serve"]

    def questions(self, svc: Services, target: Target) -> Mapping[NodeName, Sequence[Question]]:
        return dict.fromkeys(target.nodes, (self.site.facts_question, self.site.engine_question))

    def inputs(self, svc: Services, target: Target) -> InputsDigest:
        return digest_of(
            containers=identities(look(self.site, svc, target)), request=chat.request(self.site.model_id, 0)
        )

    def probe(self, svc: Services, target: Target) -> tuple[EngineSeen, ...]:
        return look(self.site, svc, target)

    def plan(self, target: Target, seen: tuple[EngineSeen, ...]) -> Plan:
        if not self._faults(seen):
            return Plan.noop("these containers have already answered a question")
        deadline_s = chat.deadline_s(self.site.profile.expect.decode_tok_per_s)
        return Plan.of(
            Step(
                f"ask {self.site.model_id} a question through {target.nodes[0]}",
                AskQuestion(self.site, target),
                detail=f"effort {chat.EFFORT}, at most {chat.MAX_TOKENS} tokens within {duration_text(deadline_s)}",
            )
        )

    def verify(self, svc: Services, target: Target) -> Verdict:
        ranks = look(self.site, svc, target)
        head = ranks[0]
        faults = self._faults(ranks)
        if not faults and head.health_status != 200:
            faults = (f"{head.node}: /health answers {head.health_status or head.health_error}",)
        if faults or head.chat is None:
            return Verdict.bad(
                "; ".join(faults),
                why="an endpoint that answers wrongly is worse than none",
                fix="`k3deploy logs` shows what the engine says; `k3deploy up` asks again",
            )
        judged = self._judged(head.chat)
        speed = f"{judged.tok_per_s or 0:g} tok/s: {judged.completion_tokens} tokens, thinking included, in " + (
            duration_text(head.chat["reply"]["seconds"])
        )
        return Verdict.ok(
            f"it answered, at {speed}",
            endpoint=f"{self.site.api_url(svc, self.site.replica(target))}/v1",
            model=self.site.model_id,
            question=chat.question_of(head.chat["request"]),
            answer=judged.answer,
            reasoning=judged.reasoning,
            prompt_tokens=judged.prompt_tokens,
            completion_tokens=judged.completion_tokens,
            tok_per_s=judged.tok_per_s,
            speed=speed,
            context=str((head.ready or {}).get("sentence", "")),
            **({"key_file": f"{head.node}:{self.site.folder.api_key}"} if self.site.is_public else {}),
        )

    def _judged(self, kept: Mapping[str, Any]) -> chat.Judged:
        reply = chat.Reply.from_dict(kept["reply"])
        return chat.judge(reply, model_id=self.site.model_id, question=chat.question_of(kept["request"]))

    def _faults(self, ranks: tuple[EngineSeen, ...]) -> tuple[str, ...]:
        kept = ranks[0].chat
        if kept is None or not counts_for(kept, identities(ranks)):
            return ("no answer of these containers is kept",)
        return self._judged(kept).faults


@dataclass(frozen=True)
class AskQuestion:
    site: EngineSite
    target: Target

    def perform(self, svc: Services, progress: Progress) -> None:
        """Raises EngineError with every fault of the answer, or when none came in time."""
        replica = self.site.replica(self.target)
        head = replica.head.node
        url = self.site.api_url(svc, replica)
        headers = {"Content-Type": "application/json", **self._key_header(svc, head)}
        self._check_models(svc, head, url, headers)
        deadline_s = chat.deadline_s(self.site.profile.expect.decode_tok_per_s)
        body = chat.request(self.site.model_id, int(svc.clock.now() * 1000))
        began = svc.clock.monotonic()
        try:
            response = svc.http.request(
                "POST",
                f"{url}/v1/chat/completions",
                via=head,
                headers=headers,
                body=json.dumps(body).encode(),
                timeout_s=deadline_s,
            )
        except EngineError as error:
            raise self._unanswered(svc, head, error, deadline_s) from error
        seconds = round(svc.clock.monotonic() - began, 3)
        reply = chat.Reply(response.status, response.body.decode("utf-8", "replace"), seconds)
        judged = chat.judge(reply, model_id=self.site.model_id, question=chat.question_of(body))
        if not judged.is_ok:
            raise self._wrong(head, judged.faults, reply.body)
        self._keep(svc, head, body, reply)
        progress(f"it says: {judged.answer}")

    def _key_header(self, svc: Services, head: NodeName) -> Mapping[str, str]:
        if not self.site.is_public:
            return {}
        read = svc.nodes[head].call(Program("api_key", {"path": self.site.folder.api_key, "show": True}, sudo=True))
        return {"Authorization": f"Bearer {read['key']}"}

    def _check_models(self, svc: Services, head: NodeName, url: str, headers: Mapping[str, str]) -> None:
        response = svc.http.request("GET", f"{url}/v1/models", via=head, headers=headers, timeout_s=_MODELS_TIMEOUT_S)
        text = response.body.decode("utf-8", "replace")
        faults = chat.model_faults(
            response.status,
            text,
            model_id=self.site.model_id,
            context_tokens=self.site.context_tokens(self.site.replica(self.target)),
        )
        if faults:
            raise self._wrong(head, faults, text)

    def _keep(self, svc: Services, head: NodeName, body: Mapping[str, object], reply: chat.Reply) -> None:
        kept = {
            "schema": 1,
            "containers": identities(look(self.site, svc, self.target)),
            "request": dict(body),
            "reply": reply.as_dict(),
        }
        svc.nodes[head].call(Program("run_file", {"write": {self.site.folder.chat: kept}}, sudo=True))

    def _unanswered(self, svc: Services, head: NodeName, error: EngineError, deadline_s: float) -> EngineError:
        """An engine whose HTTP side lives may be dead behind it: say which rank is."""
        svc.survey.forget(self.target.nodes)
        context = self.site.context_tokens(self.site.replica(self.target))
        down = not_serving(look(self.site, svc, self.target), model_id=self.site.model_id, context_tokens=context)
        rate = self.site.profile.expect.decode_tok_per_s
        return EngineError(
            what=f"{self.target.name}: the question was not answered ({error.why or error.what})",
            why="; ".join(down) or f"a rank hangs, or the engine is slower than expect.decode_tok_per_s ({rate:g})",
            fix="`k3deploy logs` shows what the engine says; `k3deploy up` starts a replica again that lost a rank",
            context={"node": head, "found": "no answer", "wanted": f"an answer within {duration_text(deadline_s)}"},
        )

    def _wrong(self, head: NodeName, faults: Sequence[str], body: str) -> EngineError:
        return EngineError(
            what=f"{self.target.name}: {faults[0]}",
            why="; ".join(faults[1:]) or "the engine is up and answers, but not as this model does",
            fix="compare the launch with `k3deploy render`, and the weights with `k3deploy verify-shards`",
            context={"node": head, "found": " ".join(body.split())[:400], "wanted": "a complete answer of the model"},
        )
