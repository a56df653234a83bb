"""Rules for the files themselves: no path of one machine, no reference to what is not here, no file too long to read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import pytest

from tests.lint.tree import TREE, files, text

# Put together here, so that this file keeps its own rule. Not after a letter or a variable: `$cache/root/` is no machine's path.
MACHINE_PATH = re.compile(r"(?<![\w.})*-])/(?:" + "|".join(("root", "work", "home/[a-z]+", "Users")) + ")/")
DOCUMENT = re.compile(r"(?<![\w/.-])([\w.-]+(?:/[\w.-]+)*\.md)\b")
LONGEST = 300


def sources() -> list[str]:
    """Files that people wrote: not the licence, not sums or manifests that a tool keeps."""
    generated = ("LICENSE", ".sum", ".mod", ".lock")
    return [name for name in files() if not name.endswith(generated)]


def expect_none(found: Iterable[object]) -> None:
    """Fails with one line per thing found."""
    told = "\n".join(map(str, found))
    if told:
        pytest.fail(told, pytrace=False)


def lines_matching(pattern: re.Pattern[str]) -> list[tuple[str, int, str]]:
    """(file, line number, what was found)."""
    return [
        (name, number, found[0].strip())
        for name in sources()
        for number, line in enumerate(text(name).splitlines(), 1)
        for found in pattern.finditer(line)
    ]


def test_no_path_of_one_machine() -> None:
    expect_none(lines_matching(MACHINE_PATH))


@pytest.mark.parametrize("line", ["see {}work/x", "'{}root/.cache'", "({}home/me/x)"])
def test_the_rule_sees_a_machine_path(line: str) -> None:
    assert MACHINE_PATH.search(line.format("/"))


@pytest.mark.parametrize("line", ["$cache/root/bin", "a/work/b", "{folder}/root/etc", "the /workers/ path"])
def test_the_rule_leaves_other_paths(line: str) -> None:
    assert not MACHINE_PATH.search(line)


def test_documents_that_are_named_exist() -> None:
    """A reader must be able to open what a comment refers to; named from the top, from the file's own folder, or by name alone in docs/."""
    there = set(files())
    absent = []
    for name, number, document in lines_matching(DOCUMENT):
        beside = os.path.normpath(os.path.join(os.path.dirname(name), document))  # noqa: PTH118, PTH120 (pure names)
        if not there & {document, beside, f"docs/{document}"}:
            absent.append((name, number, document))
    expect_none(absent)


def test_no_file_is_too_long_to_read() -> None:
    written = [name for name in sources() if name.endswith((".py", ".sh")) or text(name).startswith("#!")]
    expect_none((name, count) for name in written if (count := len(text(name).splitlines())) > LONGEST)


def test_scripts_can_be_started() -> None:
    shebang = [name for name in files() if text(name).startswith("#!")]
    assert shebang
    expect_none(name for name in shebang if not os.access(TREE / name, os.X_OK))


def test_text_ends_with_one_newline_and_has_no_conflict_markers() -> None:
    ragged = [name for name in sources() if text(name) and (not text(name).endswith("\n") or text(name).endswith("\n\n"))]
    expect_none([*ragged, *lines_matching(re.compile("^(<{7}|>{7}) "))])
