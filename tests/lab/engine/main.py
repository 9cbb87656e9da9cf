"""`sglang serve`: one node of the engine, from its command line to its end."""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from . import log, mischief, rules
from .bringup import Bringup, SchedulerFailed, SchedulerKilled
from .group import DistError, Group, PeerLost
from .launch import Launch, Rank, resolve
from .model_files import find_model
from .options import parse
from .server import Api, Engine, Follower, Server
from .state import StateFile
from .version import installed_version
from .workers import Workers


def serve(argv: list[str]) -> NoReturn:
    """Run until told to stop, or until something breaks."""
    args = parse(argv, installed_version())
    launch = resolve(args, installed_version())
    rules.check_launch(launch)
    _check_gpus()
    for text in rules.warnings(launch, argv):
        log.line(text)
    log.line(f"server_args=ServerArgs({_shown(launch)})")
    model = find_model(args.model_path, args.revision, trusts_code=args.trust_remote_code)
    if launch.has_draft and args.speculative_draft_model_path:
        find_model(args.speculative_draft_model_path, args.speculative_draft_model_revision, trusts_code=True)
    log.line("#words: 163840 - BOS ID: 163584 - EOS ID: 163585")
    log.line("Applying special tokens cache patch for Kimi tokenizer")
    ranks = launch.ranks()
    workers = Workers(ranks)
    state = StateFile(
        version=launch.version,
        argv=["sglang", "serve", *argv],
        node_rank=launch.node_rank,
        nnodes=launch.nnodes,
        gpus=[{"index": r.gpu, "tp_rank": r.tp_rank, "pid": workers.pids[r], "used_mib": 0} for r in ranks],
    )
    node = _Node(launch, workers, state)
    group = Group(launch)
    bringup = Bringup(launch, model, group, mischief.read(launch.node_rank), state)
    try:
        numbers = bringup.run()
        engine = Engine(launch, model, numbers, group, ["sglang", "serve", *argv], started=node.started)
        if launch.node_rank == 0:
            node.serve_head(engine, bringup)
        else:
            node.serve_follower(engine)
    except DistError as error:
        node.fail(str(error))
    except SchedulerFailed as error:
        node.fail(str(error))
    except SchedulerKilled as error:
        node.died(ranks[0], workers.pids[ranks[0]], error.exit_code)
    except PeerLost as error:
        node.fail(f"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer {error}")
    raise AssertionError("a node ends by itself, never by falling through")


class _Node:
    """This node's processes, and the ways in which they end."""

    def __init__(self, launch: Launch, workers: Workers, state: StateFile) -> None:
        self._launch = launch
        self._workers = workers
        self._state = state
        self._ending = threading.Lock()
        self._stop = threading.Event()
        self._is_initialised = False
        self.started = time.time()
        workers.watch(self.died)
        signal.signal(signal.SIGQUIT, self._on_sigquit)

    def serve_head(self, engine: Engine, bringup: Bringup) -> NoReturn:
        """Rank 0: the API answers 503 until the warm-up request has gone through, then the engine is ready."""
        args = self._launch.args
        bringup.enter("http")
        bringup.pause("http")
        server = self._listen(Api, engine)
        self._is_initialised = True
        signal.signal(signal.SIGTERM, self._on_sigterm)
        log.line(f"INFO:     Started server process [{os.getpid()}]")
        log.line("INFO:     Waiting for application startup.")
        log.line("INFO:     Application startup complete.")
        log.line(f"INFO:     Uvicorn running on http://{args.host}:{args.port} (Press CTRL+C to quit)")
        bringup.enter("warmup")
        is_disaggregated = args.disaggregation_mode != "null"
        if is_disaggregated:
            log.line("Start of pd disaggregation warmup ...")
        bringup.pause("warmup")
        if not engine.group.step(600):
            log.line("Initialization failed. warmup error: timed out")
            self._kill_tree()
        if is_disaggregated:
            log.line("End of disaggregation warmup with status 200")
        bringup.enter("ready")
        engine.is_up = True
        engine.startup_s = time.time() - self.started
        log.line("The server is fired up and ready to roll!")
        self._state.update(stage="serving", is_ready=True)
        self._die_when_told(engine)
        threading.Thread(target=self._watch_peers, args=(engine.group,), daemon=True).start()
        self._stop.wait()
        self._shut_down(engine, server)

    def serve_follower(self, engine: Engine) -> NoReturn:
        """Ranks above 0: a stand-in health server, and nothing but rank 0's word ends it."""
        args = self._launch.args
        self._is_initialised = True
        signal.signal(signal.SIGTERM, self._on_follower_sigterm)
        self._listen(Follower, engine)
        log.line(f"Dummy health check server started in background thread at {args.host}:{args.port}")
        self._state.update(stage="serving")
        self._die_when_told(engine)
        engine.group.wait_for_shutdown()
        self._end("stopped")

    def _listen(self, handler: type[Api] | type[Follower], engine: Engine) -> Server:
        host, port = self._launch.args.host, self._launch.args.port
        try:
            server = Server((host, port), handler)
        except OSError as error:
            log.line(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('{host}', {port}): "
                f"{os.strerror(error.errno or 0).lower()}"
            )
            self._end("failed", exit_code=1)
        server.engine = engine
        return server

    def _watch_peers(self, group: Group) -> None:
        try:
            group.wait_for_loss()
        except PeerLost as error:
            self.fail(f"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer {error}")

    def _die_when_told(self, engine: Engine) -> None:
        if (after_s := engine.mischief()["die_after_s"]) is not None:
            victim = next(iter(self._workers.pids.values()))
            threading.Timer(float(after_s), os.kill, (victim, signal.SIGKILL)).start()

    def _on_sigterm(self, signum: int, frame: FrameType | None) -> None:
        log.line(f"SIGTERM received. {signum=} frame=None. Draining requests and shutting down...")
        self._stop.set()

    def _on_follower_sigterm(self, signum: int, frame: FrameType | None) -> None:
        log.line(
            f"SIGTERM received on node_rank {self._launch.node_rank}; waiting for the rank-0 ShutdownReq broadcast "
            "to stop the schedulers."
        )

    def _on_sigquit(self, signum: int, frame: FrameType | None) -> None:
        log.line("Received sigquit from a child process. It usually means the child failed.")
        self._kill_tree()

    def _shut_down(self, engine: Engine, server: Server) -> NoReturn:
        engine.is_stopping = True
        log.line("INFO:     Shutting down")
        running = engine.counters.running
        log.line(f"Gracefully exiting... Remaining number of requests {running}. Remaining requests remaining_rids=[].")
        while engine.counters.running:
            time.sleep(0.1)
        server.shutdown()
        engine.group.shut_down()
        log.line("INFO:     Application shutdown complete.")
        log.line(f"INFO:     Finished server process [{os.getpid()}]")
        self._end("stopped")

    def fail(self, problem: str) -> NoReturn:
        """Every scheduler of this node hits an exception, and the main process takes the whole tree down."""
        if not self._ending.acquire(blocking=False):
            _wait_for_the_end()
        for rank in self._launch.ranks():
            log.line(
                "Scheduler hit an exception: Traceback (most recent call last):\n"
                '  File "sglang/srt/managers/scheduler.py", line 6359, in run_scheduler_process\n'
                "    scheduler = Scheduler(server_args, port_args)\n"
                f"{problem}\n",
                rank.tag,
            )
        log.line("Received sigquit from a child process. It usually means the child failed.")
        self._kill_tree()

    def died(self, rank: Rank, pid: int, exit_code: int) -> None:
        """A scheduler process is gone, killed from outside."""
        if not self._ending.acquire(blocking=False):
            _wait_for_the_end()
        if self._is_initialised:
            log.line(
                f"Subprocess scheduler_{rank.gpu} (pid={pid}) crashed with exit code {exit_code}. "
                "Triggering SIGQUIT for cleanup..."
            )
            log.line("SIGQUIT received. signum=<Signals.SIGQUIT: 3>, frame=None. It usually means one child failed.")
            self._kill_tree()
        log.raw(
            "Traceback (most recent call last):\n"
            f"RuntimeError: Rank {rank.gpu} scheduler died during initialization (exit code: {exit_code}). "
            "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. "
            "Run `dmesg -T | grep -i oom` to check.\n"
        )
        self._end("failed", exit_code=1)

    def _kill_tree(self) -> NoReturn:
        """SIGKILL to itself: the first process of a container survives that, and exits with 0."""
        self._state.update(stage="failed", is_ready=False)
        self._workers.kill()
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)

    def _end(self, stage: str, exit_code: int = 0) -> NoReturn:
        self._state.update(stage=stage, is_ready=False)
        self._workers.kill()
        sys.stderr.flush()
        os._exit(exit_code)


def _wait_for_the_end() -> NoReturn:
    """Another thread is already taking the process down."""
    while True:
        time.sleep(1)


def _check_gpus() -> None:
    """In the image, GPUs are there only when the container was started with them."""
    in_image = (Path(__file__).resolve().parent / "data" / "flags.json").exists()
    if in_image and os.environ.get("NVIDIA_VISIBLE_DEVICES", "void") in ("", "void", "none"):
        raise RuntimeError(
            "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver."
        )


def _shown(launch: Launch) -> str:
    pairs = ((name, value) for name, value in sorted(vars(launch.args).items()) if "api_key" not in name)
    return ", ".join(f"{name}={value!r}" for name, value in pairs if value not in (None, False, []))


def run(argv: list[str]) -> NoReturn:
    """`serve`, with an ordinary traceback and exit code 1 for what the main process refuses."""
    with suppress(BrokenPipeError):
        serve(argv)
    sys.exit(1)
