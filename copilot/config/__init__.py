"""The daemon's settings: flags and COPILOT_* environment variables, checked at once and frozen.

A flag wins over the environment variable, which wins over the default; an empty value counts as not given, because manifests
often carry empty ones. Durations are seconds, sizes bytes. `load` checks all and names every bad value in one `ConfigError`.
"""

from copilot.config.checks import Address
from copilot.config.settings import TABLE, TARGETS, ConfigError, Setting, Settings, add_arguments, load, misspelt, reference

__all__ = ["TABLE", "TARGETS", "Address", "ConfigError", "Setting", "Settings", "add_arguments", "load", "misspelt", "reference"]
