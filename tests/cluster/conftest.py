"""The cluster tier: a real node with real pods. Run it inside tests/lab/isolated, as root.

Where the machine cannot have a node every test is skipped with the reason, a sentence for each thing that is missing.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import images
from tests.lab.images import IMAGES
from tests.lab.node import Node, State, import_image, missing
from tests.lab.node.archive import program_image

BUSYBOX = "lab.local/busybox:1"
TESTED = ("slurm:24.11", "slurm:22.05", "openldap:2.5", "phpldapadmin:1.2")


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
