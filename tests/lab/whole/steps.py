"""What fills a node that runs with the whole cluster, each step told with its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.lab.node import State
from tests.lab.whole import openkruise, overlay


def fill(state: State) -> None:
    """OpenKruise, the images and the overlay, into a node that runs. AssertionError that says what did not become Ready."""
    with step("giving the node its images, starting OpenKruise meanwhile"), ThreadPoolExecutor() as pool:
        starting = pool.submit(openkruise.start, state)
        loading = [pool.submit(overlay.load, state, name, archive) for name, archive in overlay.archives().items()]
        for one in (starting, *loading):
            one.result()
        openkruise.ready(state)
    with step("applying manifests/overlays/demo"):
        overlay.apply(state)
    with step("waiting for the pods"):
        overlay.serve(state, lambda text: print(f"    {text}", flush=True))


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is done, and how many seconds it took."""
    print(f"==> {what}", flush=True)
    begin = time.monotonic()
    yield
    print(f"    {time.monotonic() - begin:.1f} s", flush=True)
