"""Open one SSH connection: bytes, key exchange, host key, login. Every wait inside ends with the same deadline."""

import contextlib
import random
import time
from dataclasses import dataclass
from typing import Any

import paramiko

from k3deploy.adapters.deadline import Deadline
from k3deploy.adapters.ssh import failures, known_hosts
from k3deploy.adapters.ssh.connection import Connection
from k3deploy.adapters.ssh.host_key import ALGORITHMS, HostKey, algorithms_for
from k3deploy.adapters.ssh.identities import Offers
from k3deploy.adapters.ssh.route import Route
from k3deploy.adapters.ssh.sockets import ProxySocket, connect_tcp
from k3deploy.domain.errors import AuthError, HostKeyError

# A server with too many unauthenticated connections drops new ones before its banner (sshd's MaxStartups).
TRIES = 5
FIRST_DELAY_S = 0.2
KEEPALIVE_S = 15


class _Dropped(Exception):
    """The server closed the connection before the key exchange was done: worth another try."""


@dataclass(frozen=True)
class _Trusted:
    keys: tuple[HostKey, ...]
    revoked: tuple[HostKey, ...]
    source: str


def connect(route: Route, deadline: Deadline, via: Connection | None = None) -> Connection:
    """`via` is the open connection to `route.via`. Raises NodeUnreachable, HostKeyError, AuthError."""
    trusted = _trusted(route)
    offered = algorithms_for({key.kind for key in trusted.keys}) or algorithms_for(set(ALGORITHMS))
    try:
        transport = _handshake(route, deadline, via, offered)
    except paramiko.ssh_exception.IncompatiblePeer as err:
        if trusted.keys:
            _explain_missing_key(route, deadline, via, trusted)
        raise failures.unreachable(route, str(err), fix="update the machine's SSH server") from err
    try:
        _check_host_key(route, _key_of(transport), trusted)
        _log_in(transport, route, deadline)
    except BaseException:
        _discard(transport)
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return Connection(transport, route)


def host_keys(route: Route, deadline: Deadline, via: Connection | None = None) -> list[HostKey]:
    """All keys that the server shows, one handshake for each type, without logging in. Trusts nothing."""
    found: list[HostKey] = []
    for kind in ALGORITHMS:
        with contextlib.suppress(paramiko.ssh_exception.IncompatiblePeer):
            transport = _handshake(route, deadline, via, ALGORITHMS[kind])
            found.append(_key_of(transport))
            _discard(transport)
    return found


def _handshake(
    route: Route, deadline: Deadline, via: Connection | None, algorithms: tuple[str, ...]
) -> paramiko.Transport:
    """Key exchange done, host key received but not judged. Raises NodeUnreachable or paramiko's IncompatiblePeer."""
    for attempt in range(1, TRIES + 1):
        try:
            return _exchange_keys(route, _stream(route, deadline, via), deadline, algorithms)
        except _Dropped as dropped:
            # Spread out, so that many connections that were dropped together do not come back together.
            delay_s = FIRST_DELAY_S * 2 ** (attempt - 1) * (0.5 + random.random())  # noqa: S311 - no secret
            if attempt == TRIES or delay_s >= deadline.remaining_s:
                raise failures.unreachable(
                    route, f"the server closed the connection before it said who it is, {attempt} times: {dropped}"
                ) from dropped
            time.sleep(delay_s)
    raise AssertionError("the last attempt returns or raises")


def _stream(route: Route, deadline: Deadline, via: Connection | None) -> Any:
    """Something with send, recv, settimeout and close that reaches the server."""
    try:
        if via is not None:
            return via.open_tcp(route.host, route.port, deadline.remaining_s)
        if route.proxy_command:
            return ProxySocket(route.proxy_command)
        return connect_tcp(route.host, route.port, deadline)
    except TimeoutError as err:
        raise failures.unreachable(route, f"no answer within {deadline.text}") from err
    except OSError as err:
        raise failures.unreachable(route, str(err)) from err


def _exchange_keys(route: Route, stream: Any, deadline: Deadline, algorithms: tuple[str, ...]) -> paramiko.Transport:
    unwanted = [name for name in algorithms_for(set(ALGORITHMS)) if name not in algorithms]
    transport = paramiko.Transport(stream, disabled_algorithms={"keys": unwanted})
    left_s = max(deadline.remaining_s, 0.001)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = left_s
    try:
        transport.start_client(timeout=left_s)
        transport.get_remote_server_key()  # raises unless the exchange is done
    except paramiko.ssh_exception.IncompatiblePeer:
        _discard(transport)
        raise
    except (paramiko.SSHException, EOFError, OSError) as err:
        _discard(transport)
        if deadline.is_over:
            raise failures.unreachable(route, f"no SSH handshake within {deadline.text}") from err
        if not transport.remote_version or isinstance(err, EOFError | OSError):
            raise _Dropped(str(err) or type(err).__name__) from err
        raise failures.unreachable(route, str(err)) from err
    return transport


def _discard(transport: paramiko.Transport) -> None:
    # paramiko's handshake timer is no daemon thread: left alone it would hold up the end of the program.
    transport.packetizer.complete_handshake()
    transport.close()
    transport.sock.close()


def _key_of(transport: paramiko.Transport) -> HostKey:
    key = transport.get_remote_server_key()
    return HostKey(key.get_name(), key.asbytes())


def _trusted(route: Route) -> _Trusted:
    if route.pin is not None:
        return _Trusted((route.pin,), (), "host_key in the nodes file")
    known = known_hosts.lookup(route.host_key_name, route.known_hosts)
    return _Trusted(known.keys, known.revoked, ", ".join(known.sources))


def _check_host_key(route: Route, found: HostKey, trusted: _Trusted) -> None:
    if found in trusted.revoked:
        raise HostKeyError(
            what=f"{route.label}: its host key has been revoked",
            why="a known_hosts file marks this key @revoked",
            fix="find out why the key was revoked before this machine is used again",
            context={**failures.context(route), "found": str(found)},
        )
    if not trusted.keys:
        raise HostKeyError(
            what=f"{route.label}: its host key is not known",
            why="nobody has said yet that this is the right machine",
            fix="compare the fingerprint with the one in the provider's console, then " + _accept(route, found),
            context={**failures.context(route), "found": str(found)},
        )
    if found not in trusted.keys:
        raise _changed(route, found, trusted)


def _changed(route: Route, found: HostKey, trusted: _Trusted) -> HostKeyError:
    return HostKeyError(
        what=f"{route.label}: its host key is not the one on record",
        why="the machine was rebuilt, or its address belongs to another one now; SSH cannot tell that from an attack",
        fix="if you know that the machine was replaced, " + _accept(route, found),
        context={
            **failures.context(route),
            "found": str(found),
            "wanted": " or ".join(str(key) for key in trusted.keys),
            "recorded in": trusted.source,
        },
    )


def _accept(route: Route, found: HostKey) -> str:
    """The one command that accepts this machine."""
    if route.node is not None:
        return f"run: k3deploy trust {route.node} --fingerprint {found.fingerprint}"
    return f"add this line to your known_hosts file: {route.host_key_name} {found.line}"


def _explain_missing_key(route: Route, deadline: Deadline, via: Connection | None, trusted: _Trusted) -> None:
    """The server has no key of the types on record. If it has others, that is a changed key: say which one."""
    with contextlib.suppress(paramiko.ssh_exception.IncompatiblePeer):
        transport = _handshake(route, deadline, via, algorithms_for(set(ALGORITHMS)))
        found = _key_of(transport)
        _discard(transport)
        raise _changed(route, found, trusted)


def _log_in(transport: paramiko.Transport, route: Route, deadline: Deadline) -> None:
    offers = Offers(route.identities)
    tried: list[str] = []
    for offer in offers:
        tried.append(offer.label)
        transport.auth_timeout = max(deadline.remaining_s, 0.001)
        try:
            further = transport.auth_publickey(route.user, offer.key)
        except paramiko.BadAuthenticationType as err:
            raise _refused(route, offers, tried, f"the server allows only {', '.join(err.allowed_types)}") from err
        except paramiko.AuthenticationException as err:
            if deadline.is_over:
                raise failures.unreachable(route, f"no answer to the login within {deadline.text}") from err
            if not transport.is_active():
                raise _refused(route, offers, tried, "the server hung up after these keys") from err
        except (paramiko.SSHException, EOFError, OSError) as err:
            raise failures.unreachable(route, f"the connection broke during the login: {err}") from err
        else:
            if further:
                why = f"the key was accepted, but the server also wants {', '.join(further)}"
                raise _refused(route, offers, tried, why)
            return
    raise _refused(route, offers, tried, "the server accepts none of the keys" if tried else "there is no key to offer")


def _refused(route: Route, offers: Offers, tried: list[str], why: str) -> AuthError:
    if offers.encrypted:
        fix = f"give the key to the agent: ssh-add {offers.encrypted[0]}"
    elif not tried:
        fix = "name a private key (`key:` in the nodes file, IdentityFile in ~/.ssh/config) or load one: ssh-add FILE"
    else:
        fix = f"check user and key; this must work: {failures.by_hand(route)}"
    return AuthError(
        what=f"{route.label}: no login as {route.user}",
        why=why,
        fix=fix,
        context={**failures.context(route), "tried": "; ".join(tried), "not tried": "; ".join(offers.passed_over)},
    )
