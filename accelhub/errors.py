"""Errors that accelhub raises. Each message says what was wanted, what was found and the command that mends it."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line. A launched script's own code is passed through instead."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2


class AccelhubError(Exception):
    """Root of accelhub's errors. The command line prints the message on one line and exits with 2."""


class UsageError(AccelhubError):
    """The request cannot be carried out as it was written: an unknown platform, a chip count that does not exist."""


class DeviceError(AccelhubError):
    """The platform that was asked for cannot be used here: no chips, a missing package, a conflict of packages."""


class PluginError(AccelhubError):
    """A plugin could not be imported, or raised inside a hook."""


class PlanError(AccelhubError):
    """A model cannot be sharded over the chips as it is."""
