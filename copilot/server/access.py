"""Who may ask: the unix socket itself, the caller's credentials, and the bearer token of the optional TCP port."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hmac
import os
import pwd
import socket
import stat
import struct
from pathlib import Path
from typing import NamedTuple

_UCRED = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
# Connections that the kernel keeps for us while the loop is busy; a burst of hooks and prologs must not be refused.
BACKLOG = 1024


class ServerError(Exception):
    """The server cannot start; the text names the cure."""


class Peer(NamedTuple):
    """The process at the other end of a unix socket. Its pid is as its own namespace's view from ours: 0 if we cannot see it."""

    pid: int
    uid: int


def peer_of(transport: asyncio.BaseTransport | None) -> Peer | None:
    """The caller as the kernel tells it (SO_PEERCRED), or None if it came over TCP or is gone."""
    sock = transport.get_extra_info("socket") if transport else None
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid)


class Access:
    """Decides whether a caller is obeyed: root and SlurmUser on the unix socket, whoever has the token on TCP."""

    def __init__(self, slurm_uid: int, token_file: Path | None) -> None:
        """ServerError if the token file cannot be read or holds no token."""
        self._uids = frozenset({0, slurm_uid})
        self._token = b""
        if token_file:
            try:
                self._token = token_file.read_bytes().strip()
            except OSError as error:
                raise ServerError(f"the token file cannot be read: {error}") from error
            if not self._token:
                raise ServerError(f"the token file {token_file} is empty: put a long random word into it")

    def allows_peer(self, peer: Peer) -> bool:
        """Whether this process's user is root or SlurmUser."""
        return peer.uid in self._uids

    def allows_token(self, authorization: str) -> bool:
        """Whether the header `Authorization` carries the token. Takes as long for a wrong one as for the right one."""
        scheme, _, given = authorization.partition(" ")
        return bool(self._token) and scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token)


class ClaimedSocket:
    """A listening unix socket that is ours alone.

    A file beside it, `<path>.lock`, is locked as long as we live: so a dead daemon's socket can be told from a live one's, which is never
    taken over. The lock file stays, since removing it would let two daemons hold locks on two files of one name.
    """

    def __init__(self, path: Path, mode: int, owner: int) -> None:
        """Binds and listens. `owner` (a uid) gets the socket if we are root. ServerError says who or what is in the way."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ServerError(f"the socket's folder {path.parent} cannot be used: {error}; set --socket") from error
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(mode, owner)
        except BaseException:
            self.socket.close()
            os.close(self._lock)
            raise
        self._inode = path.stat().st_ino

    def _bind(self, mode: int, owner: int) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ServerError(f"another slurmctld-copilot serves {self.path}: stop it or set --socket") from error
        self._clear()
        # The mode must be right before anybody can connect: the umask does that, where chmod would come too late.
        before = os.umask(0o777 & ~mode)
        try:
            self.socket.bind(str(self.path))
        except OSError as error:
            raise ServerError(f"cannot make the socket {self.path}: {error}; set --socket") from error
        finally:
            os.umask(before)
        if os.geteuid() == 0:
            os.chown(self.path, owner, _primary_group(owner))
        self.socket.setblocking(False)
        self.socket.listen(BACKLOG)

    def _clear(self) -> None:
        """Removes a socket that nobody serves; whatever else has the name is not ours to remove."""
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise ServerError(f"{self.path} is there and is no socket: remove it or set --socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            if probe.connect_ex(str(self.path)) not in (errno.ECONNREFUSED, errno.ENOENT):
                raise ServerError(f"another program serves {self.path}: stop it or set --socket")
        self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Removes the socket if it is still ours, and lets go of the lock. Whoever listens on it closes it."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except FileNotFoundError:
            pass
        self.socket.close()
        os.close(self._lock)


def _primary_group(uid: int) -> int:
    """The user's own group, or -1 (leave as it is) for a number without a name."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return -1
