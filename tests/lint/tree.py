"""The files of the tree: those git tracks and those it would."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Final

TREE: Final = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[str, ...]:
    """Paths from the top of the tree, ignored ones left out. Raises CalledProcessError where this is no git tree."""
    # A clone may belong to another user than the one who tests it.
    argv = ["git", "-c", f"safe.directory={TREE}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=TREE, check=True, capture_output=True, text=True).stdout
    return tuple(sorted(name for name in set(listed.split("\0")) if name and (TREE / name).is_file()))


@cache
def text(name: str) -> str:
    """The content of a file, "" when it is no text."""
    try:
        return (TREE / name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def scripts() -> list[str]:
    """Files that start with a shebang for a shell."""
    firsts = {name: text(name).partition("\n")[0] for name in files()}
    return [name for name, first in firsts.items() if first.startswith("#!") and first.rstrip().endswith("sh")]
