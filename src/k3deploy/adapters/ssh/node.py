"""One machine over SSH: the Node contract on a shared connection that is opened when first needed."""

import contextlib
import errno
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3deploy.adapters import bundle
from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh import failures
from k3deploy.adapters.ssh.answers import Line, Reader
from k3deploy.adapters.ssh.dialled import DialledSocket
from k3deploy.adapters.ssh.links import Link
from k3deploy.domain.command import Command, CommandResult, Program
from k3deploy.domain.errors import AuthError, K3Error, NodeError, ProgramFailed
from k3deploy.domain.names import NodeName

if TYPE_CHECKING:
    from k3deploy.adapters.ssh.process import Process

Pack = Callable[[str, Mapping[str, Any], Iterable[str]], bytes]

OUTPUT_LIMIT_BYTES = 64 << 20  # of one command, or of one line of a program
UPLOAD_TIMEOUT_S = 600.0
CHECK_TIMEOUT_S = 15.0
TRACE_BYTES = 4000

NOT_FOUND = 127  # env(1) and the shell: no such program
KILLED = 255  # as ssh(1): a signal ended it


class SshNode:
    """Implements `contracts.Node`. Threads share the connection, each with a channel of its own.

    A connection that died while idle is opened again, once per call, as long as nothing was sent. What was sent
    and then cut off is never sent again: only its caller knows whether that is safe.
    """

    def __init__(self, link: Link, *, pack: Pack = bundle.script) -> None:
        self._link = link
        self._pack = pack
        self._has_sudo = False

    @property
    def name(self) -> NodeName:
        return self._link.name

    def run(self, command: Command) -> CommandResult:
        """See the contract. A command that a signal ended has exit code 255. At most 64 MiB are read of each run."""
        result = self._run(command, Deadline(command.timeout_s))
        if command.sudo and not result.succeeded:
            self._check_sudo()
        return result

    def call(self, program: Program) -> Mapping[str, Any]:
        *_, last = self.follow(program)
        result: Mapping[str, Any] = last["result"]
        return result

    def follow(self, program: Program) -> Iterator[Line]:
        """See the contract. Nothing happens before the first line is asked for."""
        secrets = {name: secret.reveal() for name, secret in program.secrets.items()}
        args = {**program.args, "secrets": secrets} if secrets else program.args
        script = self._pack(program.entry, args, program.includes)
        deadline = Deadline(program.timeout_s)
        command = Command(("python3", "-I", "-"), sudo=program.sudo, timeout_s=program.timeout_s)
        reader, stderr = Reader(), b""
        with self._started(command, script, deadline, program.entry) as process:
            for chunk in process.chunks():
                if chunk.is_stderr:
                    stderr = (stderr + chunk.data)[-TRACE_BYTES:]
                    continue
                for line in reader.feed(chunk.data):
                    if "progress" in line:
                        yield line
                        continue
                    stderr += process.last_stderr()
                    yield self._last(program, line, stderr)
                    return
                if reader.pending_bytes > OUTPUT_LIMIT_BYTES:
                    raise failures.too_much(self._link.route, program.entry, OUTPUT_LIMIT_BYTES)
            for line in reader.end():
                yield self._last(program, line, stderr)
                return
            exit_code = process.exit_code()
        raise self._unanswered(program, exit_code, reader, stderr)

    def put(self, source: bytes | Path, path: str, *, mode: int = 0o644) -> None:
        """See the contract. A Path is streamed; the content appears under its name only when it is complete."""
        if not posixpath.isabs(path):
            raise ValueError(f"a path on a node is absolute, not {path!r}")
        if isinstance(source, Path):
            source.stat()  # a missing local file is a mistake of ours: say so before anything is sent
        from k3deploy.adapters.ssh.upload import NoSftp, UploadFailed, upload

        deadline = Deadline(UPLOAD_TIMEOUT_S)
        doing = f"writing {path}"
        try:
            with self._link.session(deadline, doing) as channel:
                upload(channel, source, path, mode, deadline)
        except NoSftp as err:
            raise NodeError(
                what=f"{self.name}: files cannot be sent",
                why="its SSH server offers no SFTP",
                fix="enable it in sshd_config: Subsystem sftp internal-sftp",
                context=failures.context(self._link.route),
            ) from err
        except UploadFailed as err:
            raise self._not_written(path, err.__cause__) from err

    def dial(self, host: str, port: int, *, timeout_s: float) -> DialledSocket:
        """See the contract. Raises ConnectionRefusedError or TimeoutError, as a socket would."""
        channel = self._link.open_tcp(host, port, Deadline(timeout_s))
        channel.settimeout(timeout_s)
        return DialledSocket(channel)

    def close(self) -> None:
        self._link.close()

    def _run(self, command: Command, deadline: Deadline) -> CommandResult:
        doing = command.argv[0]
        with self._started(command, b"", deadline, doing) as process:
            streams = (bytearray(), bytearray())
            for chunk in process.chunks():
                streams[chunk.is_stderr].extend(chunk.data)
                if len(streams[0]) + len(streams[1]) > OUTPUT_LIMIT_BYTES:
                    raise failures.too_much(self._link.route, doing, OUTPUT_LIMIT_BYTES)
            exit_code = process.exit_code()
        stdout, stderr = (bytes(stream).decode("utf-8", "replace") for stream in streams)
        return CommandResult(exit_code, stdout, stderr)

    @contextlib.contextmanager
    def _started(self, command: Command, stdin: bytes, deadline: Deadline, doing: str) -> Iterator["Process"]:
        # root needs no sudo, and a minimal image may have none.
        is_root = self._link.route.user == "root"
        line = (replace(command, sudo=False) if is_root else command).line()
        with self._link.process(line, stdin, deadline, doing) as process:
            yield process

    def _check_sudo(self) -> None:
        """Raises AuthError when it is sudo itself that says no, not the command behind it. Asked once."""
        if self._has_sudo or self._link.route.user == "root":
            return
        result = self._run(Command(("sudo", "-n", "true")), Deadline(CHECK_TIMEOUT_S))
        self._has_sudo = result.succeeded
        if not result.succeeded:
            raise self._no_sudo(result)

    def _no_sudo(self, result: CommandResult) -> AuthError:
        user = self._link.route.user
        is_missing = result.exit_code == NOT_FOUND
        return AuthError(
            what=f"{self.name}: {user} cannot become root",
            why="sudo is not installed" if is_missing else f"sudo wants a password or refuses {user}",
            fix=f"as root on the machine: echo '{user} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/k3deploy; "
            "or name a user in the nodes file who may, such as root",
            context={**failures.context(self._link.route), "sudo said": result.stderr.strip()},
        )

    def _last(self, program: Program, line: Line, stderr: bytes) -> Line:
        """The result line, or the error that it stands for."""
        if "result" in line:
            return line
        if "error" in line:
            error = line["error"]
            raise ProgramFailed(
                what=f"{self.name}: {error['what']}",
                why=error.get("why", ""),
                fix=error["fix"],
                context={"node": self.name, **error.get("context", {})},
            )
        missing = line.get("missing_module") or "k3deploy"
        if not missing.startswith("k3deploy"):
            raise self._incomplete_python(f"it lacks the module {missing}")
        raise ProgramFailed(
            what=f"{self.name}: {program.entry} broke: {_without_secrets(str(line['fault']), program)}",
            why="this is a fault in k3deploy's own program, not on the machine",
            fix="report it with the trace; the run's state is safe",
            context={"node": self.name, "trace": _without_secrets(stderr.decode("utf-8", "replace"), program)},
        )

    def _unanswered(self, program: Program, exit_code: int, reader: Reader, stderr: bytes) -> K3Error:
        """A program that ended without a last line: sudo, python3 or the machine ended it."""
        if not reader.has_spoken:
            if program.sudo:
                self._check_sudo()
            check = "import sys; sys.exit(10 if sys.version_info < (3, 10) else 0)"
            python = self._run(Command(("python3", "-I", "-c", check)), Deadline(CHECK_TIMEOUT_S))
            if python.exit_code == NOT_FOUND:
                return self._incomplete_python("it is not installed")
            if python.exit_code == 10:
                return self._incomplete_python("it is older than 3.10")
        noise = reader.noise + stderr.decode("utf-8", "replace")
        return ProgramFailed(
            what=f"{self.name}: {program.entry} ended without an answer",
            why=f"exit code {exit_code}" + ("; a signal ended it" if exit_code == KILLED else ""),
            fix="run the same command again; if it stays so, look at the machine's log for killed processes",
            context={"node": self.name, "printed": _without_secrets(noise.strip(), program)},
        )

    def _incomplete_python(self, why: str) -> NodeError:
        return NodeError(
            what=f"{self.name}: python3 cannot run our programs",
            why=why + "; they need Python 3.10 or newer with its whole standard library",
            fix="on Debian or Ubuntu: sudo apt-get install -y python3 (elsewhere: the distribution's full python3)",
            context=failures.context(self._link.route),
        )

    def _not_written(self, path: str, cause: BaseException | None) -> NodeError:
        code = cause.errno if isinstance(cause, OSError) else None
        folder = posixpath.dirname(path)
        if code == errno.ENOENT:
            why, fix = (
                f"{folder} does not exist",
                f"create the folder: sudo install -d -o {self._link.route.user} {folder}",
            )
        elif code == errno.EACCES:
            why, fix = f"{self._link.route.user} may not write there", f"check the owner of {folder}"
        else:
            # SFTP has no code for "disk full": the server says no more than "Failure".
            why, fix = f"the server said: {cause}; usually the disk is full or read-only", f"check: df -h {folder}"
        return NodeError(
            what=f"{self.name}: {path} was not written",
            why=why,
            fix=fix,
            context={**failures.context(self._link.route), "path": path},
        )


def _without_secrets(text: str, program: Program) -> str:
    for secret in program.secrets.values():
        text = text.replace(secret.reveal(), "***")
    return text
