"""The first thing that runs in each launched process: make it ready for its device, then become the script."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from accelhub.errors import AccelhubError, ExitCode
from accelhub.process import current, prepare, world_size


def main(arguments: list[str]) -> None:
    """Run `[-m] SCRIPT ARGUMENTS...` as Python itself would."""
    try:
        prepare(current())
    except AccelhubError as error:
        print(f"accelhub: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    try:
        _become(arguments)
    except BaseException as error:
        if world_size() > 1:
            _leave(error)
        raise


def _become(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def _leave(error: BaseException) -> None:
    """End a failed rank at once, without exit handlers: a vendor's may be a barrier of all ranks.

    Returns if nothing failed.
    """
    code: object = 1
    if isinstance(error, SystemExit):
        code = error.code
        if code is None or code == 0:
            return
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    else:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
