"""How often a reflector asks, in virtual time: never in a busy loop, whatever the server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest

from copilot.kube import Kube, KubeError, Reflector, Refused, State, Unavailable

pytestmark = pytest.mark.looptime(start=1000)
Object = dict[str, Any]
BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}\n'
GONE = b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}\n'


class Lines:
    """A stream: the lines, then its end, or nothing more for ever."""

    def __init__(self, lines: list[bytes], ends_after: float | None) -> None:
        self._lines = lines
        self._ends_after = ends_after

    async def readline(self) -> bytes:
        if self._lines:
            return self._lines.pop(0)
        await asyncio.sleep(self._ends_after if self._ends_after is not None else 10**6)
        return b""


class Server:
    """Stands in for Kube: answers lists with one pod, and watches as told; notes when it was asked."""

    def __init__(self, watch: Callable[[], Lines], refuse: Callable[[], KubeError | None] = lambda: None) -> None:
        self._watch = watch
        self._refuse = refuse
        self.lists: list[float] = []
        self.watches: list[float] = []
        self.mirror: Reflector[str]
        self.uid: Callable[[], str] = lambda: "a"

    async def pages(self, _path: str, _selector: str) -> AsyncIterator[tuple[list[Object], str]]:
        self.lists.append(asyncio.get_running_loop().time())
        if error := self._refuse():
            raise error
        yield [{"metadata": {"name": "gpu-0", "uid": self.uid()}}], "7"

    @asynccontextmanager
    async def stream(self, _path: str, _query: object, _silence: float) -> AsyncIterator[Lines]:
        self.watches.append(asyncio.get_running_loop().time())
        yield self._watch()


async def life(server: Server, seconds: float, **settings: Any) -> Reflector[str]:
    mirror: Reflector[str] = Reflector(cast("Kube", server), "/pods", lambda obj, _: str(obj["metadata"]["uid"]), **settings)
    server.mirror = mirror
    task = asyncio.create_task(mirror.run())
    await asyncio.sleep(seconds)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return mirror


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def test_streams_that_end_at_once_are_opened_ever_more_rarely() -> None:
    server = Server(lambda: Lines([], ends_after=0))
    mirror = await life(server, 600)
    assert min(gaps(server.watches)) >= 1.0
    assert 20 <= len(server.watches) <= 60
    assert server.lists == [1000]
    assert mirror.items == {"gpu-0": "a"}


async def test_a_stream_that_ends_in_its_time_is_followed_by_the_next_without_a_pause() -> None:
    server = Server(lambda: Lines([BOOKMARK], ends_after=270))
    await life(server, 1000)
    assert gaps(server.watches) == [270, 270, 270]


async def test_a_version_that_is_always_too_old_is_no_loop() -> None:
    server = Server(lambda: Lines([GONE], ends_after=0))
    await life(server, 600)
    assert min(gaps(server.lists)) >= 1.0
    assert len(server.lists) <= 60


async def test_a_version_that_expires_once_is_listed_again_at_once() -> None:
    streams = [Lines([GONE], None), Lines([], None)]
    server = Server(lambda: streams.pop(0))
    await life(server, 30)
    assert len(server.lists) == 2
    assert gaps(server.lists) == [pytest.approx(1.0)]


@pytest.mark.parametrize(
    "error",
    [Unavailable("down"), Unavailable("busy", "429", retry_after=1), Refused("no", 401), Refused("no", 403), Refused("no", 404)],
)
async def test_a_server_that_never_answers_is_asked_ever_more_rarely(error: KubeError) -> None:
    server = Server(lambda: Lines([], None), lambda: error)
    mirror = await life(server, 600, refused_pause=60.0)
    assert min(gaps(server.lists)) >= 0.9
    assert 10 <= len(server.lists) <= 60
    assert not mirror.items


async def test_a_long_retry_after_is_obeyed() -> None:
    server = Server(lambda: Lines([], None), lambda: Unavailable("busy", "429", retry_after=45))
    await life(server, 200)
    assert min(gaps(server.lists)) >= 45


async def test_what_worked_is_called_forbidden_only_after_some_refusals() -> None:
    answers: list[KubeError | None] = [None, *(Refused("no", 403) for _ in range(3)), None]
    streams = [Lines([], 2), Lines([GONE], None), Lines([], None)]
    server = Server(lambda: streams.pop(0), lambda: answers.pop(0))
    told: list[State] = []
    mirror = await life(server, 60, on_change=lambda: told.append(server.mirror.state))
    assert (mirror.state, answers) == (State.SYNCED, [])
    assert told == [State.SYNCED, State.BROKEN, State.SYNCED]


async def test_a_list_that_differs_is_told_and_one_that_does_not_is_not() -> None:
    streams = [Lines([GONE], None), Lines([GONE], None), Lines([], None)]
    uids = ["a", "a", "b"]
    server = Server(lambda: streams.pop(0))
    server.uid = lambda: uids.pop(0)
    told: list[dict[str, str]] = []
    await life(server, 30, on_change=lambda: told.append(dict(server.mirror.items)))
    assert told == [{"gpu-0": "a"}, {"gpu-0": "b"}]


async def test_a_kind_that_is_gone_leaves_nothing_behind() -> None:
    answers: list[KubeError | None] = [None]
    missing = Refused("no", 404, kind_missing=True)
    streams = [Lines([GONE], None)]
    server = Server(lambda: streams.pop(0), lambda: answers.pop(0) if answers else missing)
    mirror = await life(server, 30)
    assert (mirror.state, dict(mirror.items)) == (State.ABSENT, {})


async def test_a_kind_once_known_to_be_absent_is_not_unknown_again_while_the_server_is_away() -> None:
    """Else nothing would be decided until it is back."""
    answers: list[KubeError] = [Refused("no", 404, kind_missing=True)]
    server = Server(lambda: Lines([], None), lambda: answers.pop(0) if answers else Unavailable("away"))
    mirror = await life(server, 30)
    assert (mirror.state, mirror.settled) == (State.BROKEN, True)


async def test_a_server_that_was_never_there_settles_nothing() -> None:
    mirror = await life(Server(lambda: Lines([], None), lambda: Unavailable("away")), 30)
    assert (mirror.state, mirror.settled) == (State.BROKEN, False)


async def test_a_request_for_a_new_list_ends_a_long_pause() -> None:
    server = Server(lambda: Lines([], None), lambda: Refused("no", 404, kind_missing=True))
    mirror: Reflector[str] = Reflector(cast("Kube", server), "/pods", lambda _obj, _before: "", refused_pause=3600)
    task = asyncio.create_task(mirror.run())
    await asyncio.sleep(5000)
    before = len(server.lists)
    mirror.refresh()
    await asyncio.sleep(2)
    assert len(server.lists) == before + 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_object_that_cannot_be_understood_spoils_only_itself() -> None:
    line = b'{"type": "ADDED", "object": {"metadata": {"name": "%s", "resourceVersion": "9"%s}}}\n'
    server = Server(lambda: Lines([line % (b"odd", b""), line % (b"gpu-1", b', "uid": "b"')], None))
    mirror = await life(server, 10)
    assert mirror.items == {"gpu-0": "a", "gpu-1": "b"}


async def test_a_view_grows_stale_without_a_watch() -> None:
    streams = [Lines([b"half a li"], None)]
    server = Server(lambda: streams.pop(0) if streams else Lines([b"x\n"], None))
    mirror: Reflector[str] = Reflector(cast("Kube", server), "/pods", lambda obj, _: str(obj["metadata"]["uid"]), stale_after=30)
    task = asyncio.create_task(mirror.run())
    await asyncio.sleep(0.5)
    assert (mirror.state, mirror.synced) == (State.BROKEN, True)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.sleep(31)
    assert not mirror.synced
    assert mirror.items == {"gpu-0": "a"}
