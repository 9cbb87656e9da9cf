"""The engine's HTTP side: rank 0's API with its quirks, the followers' stand-in health server, the launch gate."""

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from . import chat, log, metrics, mischief
from .group import Group, PeerLost
from .launch import Launch
from .model_files import Model
from .numbers import Numbers

_OPEN_PATHS = ("/health", "/ready", "/metrics")
_STALL_S = 3600.0


@dataclass
class Engine:
    """What the API knows about the engine behind it."""

    launch: Launch
    model: Model
    numbers: Numbers
    group: Group
    argv: list[str]
    started: float = field(default_factory=time.time)
    is_up: bool = False
    is_stopping: bool = False
    counters: metrics.Counters = field(default_factory=metrics.Counters)
    startup_s: float = 0.0

    def mischief(self) -> mischief.Mischief:
        return mischief.read(self.launch.node_rank)

    def step(self) -> bool:
        """One forward step over all nodes, within the watchdog's patience."""
        told = self.mischief()
        if told["stalled"]:
            time.sleep(_STALL_S)
        time.sleep(float(told["answer_seconds"] or 0))
        return self.group.step(float(self.launch.args.watchdog_timeout or 300))


class Server(ThreadingHTTPServer):
    """A threaded server that doesn't wait for open connections when it ends."""

    daemon_threads = True
    request_queue_size = 128
    engine: Engine

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.answer("GET")

    def do_POST(self) -> None:
        self.answer("POST")

    def answer(self, method: str) -> None:
        raise NotImplementedError

    def log_message(self, *_: Any) -> None:
        """Access lines are written by `reply`, in the engine's form."""

    def reply(self, status: int, body: object = None, *, kind: str = "application/json") -> None:
        if kind == "application/json" and body is not None:
            data = json.dumps(body).encode()
        else:
            data = str(body).encode() if body is not None else b""
        self.log_access(status)
        self.send_response_only(status)
        self.send_header("server", "uvicorn")
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_access(self, status: int) -> None:
        host, port = self.client_address[:2]
        phrase = HTTPStatus(status).phrase
        log.line(f'INFO:     {host}:{port} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class Api(_Handler):
    """Rank 0."""

    def answer(self, method: str) -> None:
        path = self.path.split("?")[0]
        body = self.body()
        if not self._is_allowed(path):
            self.reply(401, {"error": "Unauthorized"})
            return
        route = self._routes().get((method, path))
        if route is None:
            known = {known for _, known in self._routes()}
            status, detail = (405, "Method Not Allowed") if path in known else (404, "Not Found")
            self.reply(status, {"detail": detail})
            return
        route(body)

    def _is_allowed(self, path: str) -> bool:
        key = self.server.engine.launch.args.api_key
        if not key or path.startswith(_OPEN_PATHS):
            return True
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token, key)

    def _routes(self) -> dict[tuple[str, str], Callable[[bytes], None]]:
        return {
            ("GET", "/health"): self._health,
            ("GET", "/health_generate"): self._health,
            ("GET", "/ready"): self._ready,
            ("GET", "/ping"): lambda _: self.reply(200),
            ("GET", "/v1/models"): self._models,
            ("GET", "/model_info"): self._model_info,
            ("GET", "/get_model_info"): self._model_info,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/v1/loads"): self._loads,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/flush_cache"): lambda _: self.reply(200, "Cache flushed.\n", kind="text/plain"),
            ("POST", "/flush_cache"): lambda _: self.reply(200, "Cache flushed.\n", kind="text/plain"),
            ("POST", "/abort_request"): lambda _: self.reply(200),
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/generate"): self._generate,
        }

    def _health(self, _: bytes) -> None:
        engine = self.server.engine
        if engine.is_stopping:
            log.line("Health check request received during shutdown. Returning 503.")
        if engine.is_stopping or not engine.is_up or engine.mischief()["unhealthy"]:
            self.reply(503)
            return
        try:
            answered = engine.group.step(20)
        except PeerLost:
            answered = False
        if not answered:
            log.line("Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.")
        self.reply(200 if answered else 503)

    def _ready(self, _: bytes) -> None:
        engine = self.server.engine
        self.reply(200 if engine.is_up and not engine.is_stopping else 503)

    def _models(self, _: bytes) -> None:
        told = self.server.engine.mischief()
        name = told["model_id"] or self.server.engine.launch.served_model_name
        card = {
            "id": name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": name,
            "parent": None,
            "max_model_len": told["max_model_len"] or self._context_len(),
        }
        self.reply(200, {"object": "list", "data": [card]})

    def _context_len(self) -> int:
        engine = self.server.engine
        return int(engine.launch.args.context_length or engine.model.context_len)

    def _deprecated(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/get_"):
            log.line(
                f"Endpoint '{path}' is deprecated and will be removed in a future version. "
                f"Please use '{path.replace('get_', '')}' instead."
            )

    def _model_info(self, _: bytes) -> None:
        self._deprecated()
        engine = self.server.engine
        args = engine.launch.args
        self.reply(
            200,
            {
                "model_path": args.model_path,
                "served_model_name": engine.launch.served_model_name,
                "tokenizer_path": args.tokenizer_path or args.model_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": args.load_format,
                "reasoning_parser": args.reasoning_parser,
                "tool_call_parser": args.tool_call_parser,
                "disaggregation_mode": args.disaggregation_mode,
                "has_image_understanding": True,
                "has_audio_understanding": False,
                "model_type": engine.model.config.get("model_type"),
                "architectures": engine.model.config.get("architectures"),
            },
        )

    def _server_info(self, _: bytes) -> None:
        self._deprecated()
        engine = self.server.engine
        options = {name: value for name, value in vars(engine.launch.args).items() if "api_key" not in name}
        state = {
            "memory_usage": {
                "weight": engine.numbers.weights_gib,
                "kvcache": engine.numbers.kv_gib,
                "token_capacity": engine.numbers.kv_tokens,
            },
            "effective_max_running_requests_per_dp": engine.numbers.max_running,
        }
        self.reply(
            200,
            {
                **options,
                "launch_command": " ".join(engine.argv),
                "max_total_num_tokens": engine.numbers.kv_tokens,
                "startup_time": engine.startup_s,
                "internal_states": [state] * engine.launch.attn_dp_size,
                "version": engine.launch.version,
                "frontend": "python",
            },
        )

    def _loads(self, _: bytes) -> None:
        engine = self.server.engine
        loads = [
            {
                "dp_rank": dp_rank,
                "num_running_reqs": engine.counters.running,
                "num_waiting_reqs": 0,
                "num_total_tokens": 0,
                "max_total_num_tokens": engine.numbers.kv_tokens,
                "max_running_requests": engine.numbers.max_running,
                "token_usage": 0.0,
            }
            for dp_rank in range(engine.launch.attn_dp_size)
        ]
        self.reply(200, {"version": engine.launch.version, "dp_rank_count": len(loads), "loads": loads})

    def _metrics(self, _: bytes) -> None:
        engine = self.server.engine
        if not engine.launch.args.enable_metrics:
            self.reply(404, {"detail": "Not Found"})
            return
        text = metrics.render(engine.launch, engine.numbers, engine.counters, engine.startup_s)
        self.reply(200, text, kind="text/plain; version=0.0.4; charset=utf-8")

    def _generate(self, data: bytes) -> None:
        if self._run_step():
            self.reply(200, {"text": " Paris.", "meta_info": {"prompt_tokens": 6, "completion_tokens": 2}})

    def _run_step(self) -> bool:
        engine = self.server.engine
        try:
            if engine.step():
                return True
        except PeerLost:
            pass
        self.close_connection = True
        return False

    def _chat(self, data: bytes) -> None:
        engine = self.server.engine
        if (self.headers.get("Content-Type") or "").split(";")[0].lower() != "application/json":
            self._bad("Unsupported Media Type: Only 'application/json' is allowed")
            return
        try:
            request = json.loads(data)
            reply = chat.generate(request, engine.launch, engine.numbers, engine.mischief(), self._context_len())
        except (ValueError, chat.BadRequest) as error:
            self._bad(str(error))
            return
        engine.counters.running += 1
        try:
            if not self._run_step():
                return
        finally:
            engine.counters.running -= 1
        engine.counters.requests += 1
        engine.counters.prompt_tokens += reply.prompt_tokens
        engine.counters.generation_tokens += reply.reasoning_tokens + reply.content_tokens
        model = str(request.get("model") or engine.launch.served_model_name)
        if not request.get("stream"):
            self.reply(200, chat.completion(reply, model))
            return
        with_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        self._stream(chat.stream(reply, model, with_usage=with_usage))

    def _stream(self, events: Any) -> None:
        self.log_access(200)
        self.send_response_only(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            data = event.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _bad(self, message: str) -> None:
        self.reply(400, {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400})


class Follower(_Handler):
    """The stand-in health server of node ranks above 0: it says that this node loaded, never that the model serves."""

    def answer(self, method: str) -> None:
        path = self.path.split("?")[0]
        engine = self.server.engine
        if method == "GET" and path in ("/ping", "/health", "/health_generate"):
            self.reply(200)
        elif method == "GET" and path == "/metrics" and engine.launch.args.enable_metrics:
            text = metrics.render(engine.launch, engine.numbers, engine.counters, engine.startup_s)
            self.reply(200, text, kind="text/plain; version=0.0.4; charset=utf-8")
        else:
            self.reply(404, {"detail": "Not Found"})

    def log_access(self, status: int) -> None:
        """This server logs warnings only."""


class Gate(_Handler):
    """`--gated-launch-port`: holds the launch until somebody posts to /gate/activate."""

    activated = threading.Event()

    def answer(self, method: str) -> None:
        if (method, self.path) == ("GET", "/health"):
            self.reply(200, "OK", kind="text/plain")
        elif (method, self.path) == ("POST", "/gate/activate"):
            self.activated.set()
            self.reply(200, "OK", kind="text/plain")
        else:
            self.reply(404, {"detail": "Not Found"})

    def log_access(self, status: int) -> None:
        """This server logs warnings only."""
