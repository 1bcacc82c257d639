"""What accelhub tells the user while their script runs: on stderr, once, from one rank."""

from __future__ import annotations

import logging
import os
from functools import cache

_logger = logging.getLogger("accelhub")


@cache
def say_once(text: str) -> None:
    """Tell the user something that was decided for them. Only the first rank of a host speaks.

    It is a warning of the logger "accelhub", so Python prints it to stderr unless the program arranged otherwise.
    """
    level = logging.WARNING if os.environ.get("LOCAL_RANK", "0") == "0" else logging.DEBUG
    _logger.log(level, "accelhub: %s", text)
