"""How values are read from text: one `Check` for each kind of value, with the words that say what is allowed."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# sun_path of unix(7) holds 108 bytes, the closing zero among them.
SOCKET_PATH_MAX = 107


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Check(NamedTuple):
    """How one kind of value is read from text; `parse` raises ValueError or OSError for what is not `allowed`."""

    parse: Callable[[str], object]
    allowed: str


def number(low: float, high: float, unit: str) -> Check:
    """A number within bounds, both allowed; NaN is none."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return Check(parse, f"{low:g} to {high:g} {unit}")


def whole(low: int, high: int, unit: str) -> Check:
    """A whole number within bounds, both allowed."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(text)
        return value

    return Check(parse, f"a whole number, {low} to {high} {unit}")


def one_of(words: tuple[str, ...]) -> Check:
    """One word of a few, in any case."""

    def parse(text: str) -> str:
        return words[words.index(text.lower())]

    return Check(parse, f"one of {', '.join(words)}")


def words_of(allowed: tuple[str, ...]) -> Check:
    """Several words of a few, in the order given, each once."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = [word.strip().lower() for word in text.split(",")]
        if set(chosen) - set(allowed):
            raise ValueError(text)
        return tuple(dict.fromkeys(chosen))

    return Check(parse, f"one or more of {', '.join(allowed)}, joined by commas")


def matching(pattern: str, allowed: str) -> Check:
    """Text of a certain form, as it stands."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return Check(parse, allowed)


def _socket_path(text: str) -> Path:
    if not text.startswith("/") or len(os.fsencode(text)) > SOCKET_PATH_MAX:
        raise ValueError(text)
    return Path(text)


def _mode(text: str) -> int:
    value = int(text, 8)
    if value & ~0o777 or value & 0o600 != 0o600:
        raise ValueError(text)
    return value


def _address(text: str) -> Address | None:
    if text.lower() == "off":
        return None
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    ipaddress.ip_address(host)
    if not colon or not 0 <= int(port) <= 65535:
        raise ValueError(text)
    return Address(host, int(port))


def _loopback(text: str) -> Address | None:
    address = _address(text)
    if address and not ipaddress.ip_address(address.host).is_loopback:
        raise ValueError(text)
    return address


def _command(text: str) -> tuple[str, ...]:
    words = tuple(shlex.split(text))
    if not words:
        raise ValueError(text)
    return words


def _readable(text: str) -> Path:
    with Path(text).open("rb"):
        return Path(text)


def _switch(text: str) -> bool:
    return {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}[text.lower()]


_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
SOCKET_PATH = Check(_socket_path, f"an absolute path of at most {SOCKET_PATH_MAX} bytes")
MODE = Check(_mode, "an octal file mode that lets its owner read and write, such as 0660")
USER = matching(r"[A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]{1,10}", "a user's name or number")
ADDRESS = Check(_address, "IP address:port, or off")
LOOPBACK = Check(_loopback, "loopback address:port such as 127.0.0.1:9818, or off")
READABLE = Check(_readable, "a file that can be read")
NAMESPACE = matching(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "a namespace's name: at most 63 of a-z, 0-9 and -")
LABEL = matching(rf"([a-z0-9][a-z0-9.-]{{0,251}}[a-z0-9]/)?{_LABEL_NAME}(={_LABEL_NAME})?", "a label, key=value or key")
COMMAND = Check(_command, "a program, with arguments if need be")
SWITCH = Check(_switch, "true or false")
