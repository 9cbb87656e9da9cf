"""Lines by which SGLang says that a start-up went wrong: what each means and what to do. Data, matched by text.

The engine has no exit codes or error types that would tell these apart, so its log is the only source. Wordings are
those of SGLang 0.5.17 to 0.5.23, of torch 2.14 and of the NVIDIA container runtime.
"""

from dataclasses import dataclass
from enum import IntEnum


class Weight(IntEnum):
    """How much a line says about the cause. Of several failures in a log the heaviest is the one to show."""

    NOTE = 0  # a warning: it explains a later failure, and is none by itself
    GENERAL = 1  # "something failed": the cause stands elsewhere
    CONSEQUENCE = 2  # a rank went down because another one did, or waited for one that never came
    CAUSE = 3


@dataclass(frozen=True)
class Failure:
    """`texts` must all occur in the line. `meaning` and `fix` are shown as why and fix."""

    name: str
    texts: tuple[str, ...]
    meaning: str
    fix: str
    weight: Weight = Weight.CAUSE

    def matches(self, line: str) -> bool:
        return all(text in line for text in self.texts)


_RELAUNCH = "run `k3deploy up` again: the whole replica is launched afresh, weights and image stay"

# The first match counts, so the more telling text stands before the more general one.
FAILURES: tuple[Failure, ...] = (
    Failure(
        "shared-memory",
        ("shared memory segment", "No space left on device"),
        "the node's /dev/shm is too small: with --ipc=host the container uses the node's own, whatever --shm-size says",
        "give /dev/shm at least 32 GiB on this node (`mount -o remount,size=32g /dev/shm`); no disk is full",
    ),
    Failure(
        "weights-leave-no-kv",
        ("Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static",),
        "with the weights loaded, the static part of the GPU memory has no room for any request",
        "raise mem-fraction-static to at least the figure in the engine's message, or use more or larger GPUs",
    ),
    Failure(
        "no-kv-pool",
        ("Not enough memory. Please try to increase --mem-fraction-static.",),
        "the KV pool would be empty",
        "raise mem-fraction-static a little (0.03 at a time), or use more or larger GPUs",
    ),
    Failure(
        "no-state-pool",
        ("Not enough GPU memory for hybrid (mamba/linear-attention) state cache",),
        "the recurrent state of the linear-attention layers does not fit beside the weights",
        "raise mem-fraction-static, or lower mamba-full-memory-ratio",
    ),
    Failure(
        "state-pool-too-small",
        ("state cache is too small to serve any requests",),
        "the state pool holds less than what one request needs",
        "raise mamba-full-memory-ratio or mem-fraction-static",
    ),
    Failure(
        "graph-capture",
        ("Capture cuda graph failed",),
        "recording the CUDA graphs needs GPU memory outside the static part, and there was not enough",
        "lower mem-fraction-static by 0.03, or cuda-graph-max-bs-decode",
    ),
    Failure(
        "collective-timeout",
        ("Watchdog caught collective operation timeout",),
        "ranks reached a common step too far apart, or one never reached it: --dist-timeout passed while they waited",
        "look for the rank that lags in the list of ranks; with a slow disk raise dist-timeout (3600 is usual)",
        Weight.CONSEQUENCE,
    ),
    Failure(
        "mega-moe-domain",
        ("CUDA_ERROR_ILLEGAL_ADDRESS", "mega_moe"),
        "MegaMoE reached for a GPU outside this NVLink domain; on Hopper a domain ends with the server",
        "set moe-a2a-backend to none or deepep for this hardware",
    ),
    Failure(
        "mega-moe-cap",
        ("mega MoE: num_tokens=", "exceeds"),
        "a prefill chunk is larger than MegaMoE's cap on tokens per rank",
        "raise SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK or lower chunked-prefill-size",
    ),
    Failure(
        "out-of-memory",
        ("torch.OutOfMemoryError",),
        "a GPU ran out of memory",
        "lower mem-fraction-static by 0.03, and look for other processes on this node's GPUs",
    ),
    Failure(
        "out-of-memory",
        ("CUDA out of memory",),
        "a GPU ran out of memory",
        "lower mem-fraction-static by 0.03, and look for other processes on this node's GPUs",
    ),
    Failure(
        "driver-too-old",
        ("The NVIDIA driver on your system is too old (found version",),
        "the image's CUDA is newer than this node's driver allows",
        "use an image for the driver's CUDA, or nodes with a newer driver (r580 or later for CUDA 13)",
    ),
    Failure(
        "cuda-requirement",
        ("requirements not met: cuda>=",),
        "the container runtime refused the image: this node's driver is older than the image asks for",
        "use an image for the driver's CUDA, or nodes with a newer driver (r580 or later for CUDA 13)",
    ),
    Failure(
        "cuda-requirement",
        ("unsatisfied condition: cuda",),
        "the container runtime refused the image: this node's driver is older than the image asks for",
        "use an image for the driver's CUDA, or nodes with a newer driver (r580 or later for CUDA 13)",
    ),
    Failure(
        "gpu-lost",
        ("Failed to initialize NVML: Unknown Error",),
        "the container lost its GPUs while it ran, as happens after a systemd reload on the node",
        _RELAUNCH,
    ),
    Failure(
        "dmabuf",
        ("mlx5dv_reg_dmabuf_mr", "524"),
        "the RDMA driver of this kernel cannot register GPU memory by dma-buf",
        "set NCCL_DMABUF_ENABLE to 0 in engine.env",
    ),
    Failure(
        "port-waiting",
        ("port ", " is in use. Waiting"),
        "a port of the engine is held by something else; the engine waits up to 30 s for it",
        "stop what holds the port, or choose another port in the profile",
        Weight.NOTE,
    ),
    Failure(
        "port-unavailable",
        ("port ", " is not available"),
        "a port of the engine is held by something else on this node",
        "stop what holds the port, or choose another port in the profile",
        Weight.NOTE,
    ),
    Failure(
        "port-taken",
        ("Port is already in use.",),
        "a port of the engine is held by something else on this node",
        "stop what holds the port, or choose another port in the profile",
    ),
    Failure(
        "port-taken",
        ("address already in use",),
        "a port of the engine is held by something else on this node",
        "stop what holds the port, or choose another port in the profile",
    ),
    Failure(
        "page-size",
        ("Page size mismatch: prefill server",),
        "prefill and decode replicas were launched with different page sizes",
        "use the same page-size, kv-cache-dtype and pipeline sizes in both pools",
    ),
    Failure(
        "kv-dtype",
        ("KV cache dtype mismatch: prefill server",),
        "prefill and decode replicas keep their KV cache in different types",
        "use the same kv-cache-dtype in both pools",
    ),
    Failure(
        "pipeline-size",
        ("Decode pp size (",),
        "the decode replica's pipeline size is neither 1 nor that of the prefill replica",
        "set the decode pool's parallel.pipeline to 1 or to the prefill pool's",
    ),
    Failure(
        "peer-lost",
        ("Connection closed by peer",),
        "another rank of the replica went down, and this one cannot go on without it",
        "look at the rank that ended first",
        Weight.CONSEQUENCE,
    ),
    Failure(
        "nccl",
        ("NCCL error:",),
        "a collective over the ranks failed: the network between the nodes, or a peer that went down",
        "check that every private port is open between the nodes and that the right interface is used",
        Weight.CONSEQUENCE,
    ),
    Failure(
        "warm-up",
        ("Initialization failed. warmup error",),
        "the engine loaded, but its own first request did not come back; it ends itself",
        "look at the lines above this one in `k3deploy logs`",
        Weight.GENERAL,
    ),
    Failure(
        "pd-warm-up",
        ("Disaggregation warmup failed",),
        "the first request between prefill and decode did not come back",
        "check that the transfer backend's network is open between the pools",
        Weight.GENERAL,
    ),
    Failure(
        "forward-step-stuck",
        ("Scheduler", "watchdog timeout ("),
        "one forward step took longer than --watchdog-timeout; the engine ends itself",
        "look for a lost GPU; if first steps are slow here raise watchdog-timeout (3600 is usual on large replicas)",
    ),
    Failure(
        "detokenizer-silent",
        ("Health check failed. Server couldn't get a response from detokenizer",),
        "the engine's HTTP side lives, the schedulers behind it do not answer",
        _RELAUNCH,
        Weight.GENERAL,
    ),
    Failure(
        "killed",
        ("scheduler died during initialization (exit code: -9",),
        "a scheduler was killed from outside, in nearly all cases by the node's out-of-memory killer",
        "look at the node's kernel log (`dmesg -T`) for the OOM killer; free host memory or use nodes with more",
    ),
    Failure(
        "scheduler-died",
        ("scheduler died during initialization (exit code",),
        "a scheduler process ended while it started",
        "look at the lines above this one in `k3deploy logs`",
        Weight.GENERAL,
    ),
    Failure(
        "subprocess-crashed",
        ("Subprocess scheduler_", "crashed with exit code"),
        "a scheduler process ended",
        "look at the lines above this one in `k3deploy logs`; an exit code of -9 points to the OOM killer",
        Weight.GENERAL,
    ),
    Failure(
        "controller-exception",
        ("DataParallelController hit an exception",),
        "the engine's data-parallel controller failed",
        "look at the lines after this one in `k3deploy logs`",
        Weight.GENERAL,
    ),
    Failure(
        "scheduler-exception",
        ("Scheduler hit an exception",),
        "a scheduler failed with an exception",
        "look at the lines after this one in `k3deploy logs`",
        Weight.GENERAL,
    ),
    Failure(
        "sigquit",
        ("Received sigquit from a child process",),
        "a process of the engine failed, and the engine ended as a whole",
        "look at the lines above this one in `k3deploy logs`",
        Weight.GENERAL,
    ),
    Failure(
        "memory-unbalanced",
        ("The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",),
        "this GPU has less free memory than its peers: something else is using it",
        "stop the other processes on this node's GPUs (`nvidia-smi`)",
        Weight.NOTE,
    ),
)


def find_failure(line: str) -> Failure | None:
    """The failure that a line tells of, if any."""
    return next((failure for failure in FAILURES if failure.matches(line)), None)
