"""The cluster tier: a real node with real pods. Run it inside tests/lab/isolated, as root.

Where the machine cannot have a node every test is skipped with the reason, a sentence for each thing that is missing.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.pods import until
from tests.cluster.whole import Whole
from tests.lab import images
from tests.lab.images import IMAGES
from tests.lab.node import Node, State, import_image, missing
from tests.lab.node.archive import program_image
from tests.lab.whole import overlay
from tests.lab.whole.steps import fill

# Two tiers share this folder: `cluster` has the node and the images, `whole` all of overlays/demo on such a node (COPILOT_WHOLE=1).
_WHOLE = sorted(path.name for path in Path(__file__).parent.glob("test_whole*.py"))
_OTHERS = sorted(path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in _WHOLE)
collect_ignore = _OTHERS if os.environ.get("COPILOT_WHOLE") else _WHOLE
# At the end, in this order: while nodes fail one after the other, the rest is idle for SuspendTime, and the timers need not be waited for.
_LAST = ("test_whole_failures.py", "test_whole_timers.py")

BUSYBOX = "lab.local/busybox:1"
TESTED = ("slurm:24.11", "slurm:22.05", "openldap:2.5", "phpldapadmin:1.2")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The modules in the order of their names, but for the last."""
    items.sort(key=lambda item: _LAST.index(item.path.name) + 1 if item.path.name in _LAST else 0)


@pytest.fixture(scope="session")
def node_folder() -> Iterator[Path]:
    """Not pytest's own: its paths are too long for sockets, and it keeps them."""
    with tempfile.TemporaryDirectory(prefix="copilot-cluster-") as folder:
        if why := missing(Path(folder)):
            pytest.skip("; ".join(why))
        yield Path(folder)


@pytest.fixture(scope="session")
def archives() -> dict[str, Path]:
    """The docker-archives of the images, built from the tree as it is: minutes if something of the lower layers has changed."""
    if why := images.missing():
        pytest.skip(why)
    return {name: images.build(IMAGES[name]) for name in TESTED}


@pytest.fixture(scope="session")
def loaded(node: State, archives: dict[str, Path]) -> State:
    """The node with the images."""
    for archive in archives.values():
        import_image(node, archive)
    return node


@pytest.fixture(scope="session")
def node(node_folder: Path) -> Iterator[State]:
    """A node that runs, with an image that has a shell."""
    one = Node(node_folder / "node")
    asyncio.run(one.start())
    try:
        program_image(node_folder / "busybox.tar", BUSYBOX, [Path("/usr/bin/busybox")], ["/busybox"])
        import_image(one.state, node_folder / "busybox.tar")
        yield one.state
    finally:
        asyncio.run(one.stop())


@pytest.fixture(scope="session")
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """overlays/demo on the node, every serving pod Ready, with a user. COPILOT_CLUSTER names the folder of one that runs, as `make cluster` has it."""
    if folder := os.environ.get("COPILOT_CLUSTER"):
        node = State(Path(folder))
    else:
        if why := images.missing():
            pytest.skip(why)
        node = request.getfixturevalue("node")
        fill(node)
    scripts = tmp_path_factory.mktemp("ssh")
    (scripts / "askpass").write_text('#!/bin/sh\necho "$SECRET"\n')
    (scripts / "askpass").chmod(0o755)
    one = Whole(node, scripts, overlay.new_user(f"grace{os.getpid()}", 30000 + os.getpid()))
    overlay.directory(node, "ldapadd", one.user.entries())
    until(lambda: one.ssh("true").returncode == 0, "the user to log in")
    return one
