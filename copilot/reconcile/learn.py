"""What is asked rarely and with patience: versions, and what slurm.conf says of power saving."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from copilot.slurm import Saving, Slurm, SlurmUnavailable, saving_of

# Seconds between two looks at what slurm.conf says of power saving; only `status` tells of it.
_SAVING = 300.0
_AGAIN = 5.0
T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]], failure: type[Exception]) -> T:
    """The answer, however long it takes to get one; asked every five seconds."""
    while True:
        try:
            return await ask()
        except failure:
            await asyncio.sleep(_AGAIN)


async def follow_saving(slurm: Slurm, on_saving: Callable[[Saving], None]) -> NoReturn:
    """Learns again and again which nodes slurmctld never powers down."""
    while True:
        config = await patiently(slurm.config, SlurmUnavailable)
        partitions = await patiently(slurm.partitions, SlurmUnavailable)
        # ten thousand names take some milliseconds
        on_saving(await asyncio.to_thread(saving_of, config, partitions))
        await asyncio.sleep(_SAVING)
