"""The node rows of the picture that `status` prints: made as they are asked for, while the loop goes on."""

from __future__ import annotations

from copilot.config import Settings
from copilot.model import Kind
from tests.unit.known_world import NAMESPACE, known_world


async def test_rows_stay_as_they_were_when_the_group_goes_before_they_are_read() -> None:
    loop = known_world(Settings())
    names = [row["name"] for row in loop.snapshot()["nodes"]]
    assert len(names) > 1
    assert names == sorted(names, key=lambda name: int(name.rpartition("-")[2]))
    late = loop.snapshot()["nodes"]
    loop.groups.observe(Kind.STATEFUL_SET, NAMESPACE, {})
    loop.on_targets(synced=True)
    loop.tick()
    assert not loop.snapshot()["nodes"]
    assert [row["name"] for row in late[:1] + late[1:]] == names
    assert {row["group"] for row in late} == {"cpu"}
