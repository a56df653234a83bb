"""structlog's configuration, and the last line that told of an error, for `status`."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, TextIO

import structlog

_last: dict[str, Any] = {}


def last_error() -> dict[str, Any] | None:
    """Event, age in seconds and words of the last line of level error; None before the first."""
    if not _last:
        return None
    return {"event": _last["event"], "age": round(time.monotonic() - _last["at"], 1), "error": _last["error"]}


def forget_error() -> None:
    """As after a start."""
    _last.clear()


def _remember(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if event.get("level") == "error":
        _last.update(event=event.get("event", ""), at=time.monotonic(), error=str(event.get("error", "")))
    return event


def configure_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """All logging to `stream` (default stdout), one event a line. `level` and `form` as in the settings; `auto` is console on a tty.

    Our own lines go through structlog's native loggers; those of libraries and warnings are led through the same renderer.
    """
    out = stream or sys.stdout
    console = form == "console" or (form == "auto" and out.isatty())
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if console else "iso", utc=not console, key="time"),
    ]
    # Tracebacks without local variables, which may hold tokens.
    plain = structlog.dev.plain_traceback
    frames = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty(), timestamp_key="time", exception_formatter=plain)]
        if console
        else [frames, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, _remember, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(out),
        # A logger kept from before a second call of this function would go on writing to the first stream.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    chain: list[structlog.typing.Processor] = [_library, *shared]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=chain, processors=[remove, *render]))
    # What libraries say at level info is of interest to their developers only.
    logging.basicConfig(handlers=[handler], level=number if level == "debug" else max(number, logging.WARNING), force=True)
    logging.captureWarnings(capture=True)


def _library(_logger: object, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """A line of a library: a constant event name, its own words as a value."""
    record = event.get("_record")
    event["library"] = getattr(record, "name", "")
    event["message"] = event.pop("event", "")
    event["event"] = "library"
    return event
