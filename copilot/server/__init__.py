"""HTTP: hooks, waits and status on the unix socket; metrics and health on TCP. The only import of aiohttp.web."""

from copilot.server.access import ServerError
from copilot.server.core import Core, Health, HookAnswer, WaitAnswer, WaitState
from copilot.server.listeners import Server

__all__ = ["Core", "Health", "HookAnswer", "Server", "ServerError", "WaitAnswer", "WaitState"]
