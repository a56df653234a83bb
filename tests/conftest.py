"""For every tier."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """Says that this thread has no event loop: else Python 3.11 makes one for pytest-asyncio's first question, which nobody closes."""
    asyncio.set_event_loop(None)
