"""From a node's entry in nodes.yaml to the way it is reached, with ~/.ssh/config filling what the entry leaves open.

`ssh -G` answers when there is an ssh client, so Include, Match and canonical names mean what they mean to `ssh`.
Else paramiko's parser does, which knows no Include, runs no `Match exec`, expands fewer tokens, and does not see the
user that nodes.yaml names.
`StrictHostKeyChecking` is not read: host keys are always strict here.
"""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3deploy.adapters.ssh import paramiko_loader
from k3deploy.adapters.ssh.host_key import HostKey
from k3deploy.adapters.ssh.known_hosts import name_for
from k3deploy.adapters.ssh.route import Identities, Route
from k3deploy.domain.errors import K3Error, ProfileError
from k3deploy.domain.nodes_file import NodeEntry

SSH_G_TIMEOUT_S = 15.0  # `Match exec` may run programs of the operator's
LONGEST_CHAIN = 8

# OpenSSH 9.2 `ssh -G` prints these when no IdentityFile is set.
_DEFAULT_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk", "id_xmss", "id_dsa")
_DEFAULT_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2 /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"

Options = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class _Wanted:
    """One machine to look up: what nodes.yaml or a jump specification says; the rest comes from the configuration."""

    label: str
    address: str
    node: str | None = None
    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None  # None: as configured; "none": directly
    pin: HostKey | None = None


class SshConfig:
    """The operator's ssh configuration: `path` instead of ~/.ssh/config and /etc/ssh/ssh_config when given."""

    def __init__(self, path: Path | None = None, *, ssh: str | None = "ssh") -> None:
        self._path = path
        self._ssh = shutil.which(ssh) if ssh else None

    def route(self, entry: NodeEntry) -> Route:
        """Raises ProfileError for an entry or a configuration that cannot be used."""
        return self._route(
            _Wanted(
                label=entry.name,
                node=entry.name,
                address=entry.address,
                user=entry.user,
                port=entry.port,
                key=entry.key,
                jump=entry.jump,
                pin=_pin(entry),
            ),
            depth=0,
        )

    def _route(self, wanted: _Wanted, depth: int) -> Route:
        if depth > LONGEST_CHAIN:
            raise ProfileError(
                what=f"{wanted.label}: more than {LONGEST_CHAIN} jump hosts in a row",
                why="a jump host probably names itself, directly or in a circle",
                fix="check ProxyJump in the ssh configuration and `jump` in nodes.yaml",
            )
        options = self._options(wanted)
        host = _one(options, "hostname") or wanted.address
        user = wanted.user or _one(options, "user") or getpass.getuser()
        port = wanted.port or int(_one(options, "port") or 22)
        tokens = _tokens(host=host, original=wanted.address, user=user, port=port)
        jump = wanted.jump or _one(options, "proxyjump") or "none"
        command = "none" if wanted.jump else _one(options, "proxycommand") or "none"
        return Route(
            label=wanted.label,
            node=wanted.node,
            host=host,
            port=port,
            user=user,
            identities=_identities(wanted, options, tokens),
            host_key_name=_one(options, "hostkeyalias") or name_for(host, port),
            known_hosts=_known_hosts(options, tokens),
            pin=wanted.pin,
            via=None if jump.lower() == "none" else self._jump(jump, depth),
            proxy_command=() if command.lower() == "none" else _proxy_words(wanted, command, tokens),
        )

    def _jump(self, chain: str, depth: int) -> Route:
        """`a,b`: b is reached through a. The first hop follows its own configuration, as with `ssh -J`."""
        *before, last = [hop.strip() for hop in chain.split(",")]
        user, host, port = _split(last)
        return self._route(
            _Wanted(
                label=f"jump host {last}", address=host, user=user, port=port, jump=",".join(before) if before else None
            ),
            depth + 1,
        )

    def _options(self, wanted: _Wanted) -> Options:
        if wanted.address.startswith("-"):
            raise ProfileError(
                what=f"{wanted.label}: the address {wanted.address!r} looks like an option",
                fix="give an address, a DNS name or an alias of ~/.ssh/config",
            )
        return self._ask_ssh(wanted) if self._ssh else self._ask_paramiko(wanted)

    def _ask_ssh(self, wanted: _Wanted) -> Options:
        argv = [self._ssh or "ssh", "-G"]
        # Given, not overridden afterwards: `Match user` must see them.
        argv += ["-F", str(self._path)] if self._path else []
        argv += ["-l", wanted.user] if wanted.user else []
        argv += ["-p", str(wanted.port)] if wanted.port else []
        try:
            done = subprocess.run(
                [*argv, "--", wanted.address],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SSH_G_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as err:
            raise _unusable(wanted, f"`ssh -G` gave no answer: {err}") from err
        if done.returncode != 0:
            raise _unusable(wanted, done.stderr.decode("utf-8", "replace").strip())
        return parse_ssh_g(done.stdout.decode("utf-8", "replace"))

    def _ask_paramiko(self, wanted: _Wanted) -> Options:
        paramiko_loader.load()
        from paramiko import SSHConfig as Parser
        from paramiko.ssh_exception import SSHException

        files = [self._path] if self._path else [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
        parsed = Parser()
        login, _, address = wanted.address.rpartition("@")
        try:
            for path in files:
                if path.is_file():
                    with path.open() as text:
                        parsed.parse(text)
            found = parsed.lookup(address)
        except (SSHException, ValueError) as err:
            raise _unusable(wanted, str(err)) from err
        values: dict[str, Any] = dict(found)
        options = {name: [value] if isinstance(value, str) else list(value or ()) for name, value in values.items()}
        return {**options, "user": [login]} if login else options


def parse_ssh_g(text: str) -> dict[str, list[str]]:
    """`ssh -G` prints "name value" lines; a name that may repeat (identityfile) does."""
    options: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), []).append(value)
    return options


def _one(options: Options, name: str) -> str | None:
    values = options.get(name)
    return values[0] if values else None


def _pin(entry: NodeEntry) -> HostKey | None:
    if entry.host_key is None:
        return None
    try:
        return HostKey.parse(entry.host_key)
    except ValueError as err:
        raise ProfileError(
            what=f"{entry.name}: host_key in the nodes file cannot be read",
            why=str(err),
            fix=f"remove it, then run: k3deploy trust {entry.name}",
            context={"found": entry.host_key},
        ) from err


def _split(hop: str) -> tuple[str | None, str, int | None]:
    """`[user@]host[:port]`, with IPv6 addresses in brackets, or `ssh://...` of the same."""
    rest = hop.removeprefix("ssh://").rstrip("/")
    user, at, rest = rest.rpartition("@")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if not host or (port and not port.isdecimal()) or (at and not user):
        raise ProfileError(
            what=f"{hop!r} is no jump host",
            fix="write it as [user@]host[:port], several separated by commas",
        )
    return user or None, host, int(port) if port else None


def _tokens(*, host: str, original: str, user: str, port: int) -> dict[str, str]:
    """The tokens of ssh_config(5) that can occur in file names and in ProxyCommand."""
    name = socket.gethostname()
    return {
        "%%": "%",
        "%h": host,
        "%n": original,
        "%p": str(port),
        "%r": user,
        "%u": getpass.getuser(),
        "%d": str(Path.home()),
        "%l": name,
        "%L": name.split(".", 1)[0],
        "%i": str(os.getuid()),
    }


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    out, rest = "", text
    while rest:
        head, percent, rest = rest.partition("%")
        out += head
        if percent:
            out += tokens.get("%" + rest[:1], "%" + rest[:1])
            rest = rest[1:]
    return out


def _identities(wanted: _Wanted, options: Options, tokens: Mapping[str, str]) -> Identities:
    agent = _agent_socket(_one(options, "identityagent"), tokens)
    if wanted.key is not None:
        return Identities((Path(wanted.key).expanduser(),), only_files=True, is_explicit=True, agent_socket=agent)
    default = tuple(Path("~/.ssh", name).expanduser() for name in _DEFAULT_KEYS)
    files = tuple(Path(_expand(name, tokens)).expanduser() for name in options.get("identityfile", ()))
    files = tuple(path for path in files if path.name.lower() != "none") or default
    return Identities(
        files=files,
        only_files=_one(options, "identitiesonly") == "yes",
        is_explicit=not set(files) <= set(default),
        agent_socket=agent,
    )


def _agent_socket(configured: str | None, tokens: Mapping[str, str]) -> str | None:
    if configured is None or configured == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if configured.lower() == "none":
        return None
    if configured.startswith("$"):
        return os.environ.get(configured[1:].strip("{}")) or None
    return str(Path(_expand(configured, tokens)).expanduser())


def _known_hosts(options: Options, tokens: Mapping[str, str]) -> tuple[Path, ...]:
    named = [
        name
        for option in ("userknownhostsfile", "globalknownhostsfile")
        for value in options.get(option, ())
        for name in value.split()
    ]
    chosen = named or _DEFAULT_KNOWN_HOSTS.split()
    return tuple(Path(_expand(name, tokens)).expanduser() for name in chosen if name.lower() != "none")


def _proxy_words(wanted: _Wanted, command: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """Split into words before tokens are filled in: a host name can add no word. There is no shell, so no pipe."""
    try:
        words = shlex.split(command)
    except ValueError as err:
        raise _unusable(wanted, f"ProxyCommand {command!r}: {err}") from err
    if words[:1] == ["exec"]:
        words = words[1:]
    return tuple(_expand(word, tokens) for word in words)


def _unusable(wanted: _Wanted, why: str) -> K3Error:
    return ProfileError(
        what=f"{wanted.label}: the ssh configuration cannot be used",
        why=why,
        fix=f"check what this prints: ssh -G {shlex.quote(wanted.address)}",
    )
