"""HTTP: hooks, waits and status on the unix socket; metrics and health on TCP. The only import of aiohttp.web."""

from copilot.server.core import Core, Health, HookAnswer, WaitAnswer, WaitState

__all__ = ["Core", "Health", "HookAnswer", "WaitAnswer", "WaitState"]
