"""The first thing that runs in each launched process: make it ready for its device, then become the script."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from accelhub.errors import AccelhubError, ExitCode
from accelhub.platforms import choose
from accelhub.process import prepare, sightings


def main(arguments: list[str]) -> None:
    """Run `[-m] SCRIPT ARGUMENTS...` as Python itself would."""
    try:
        prepare(choose(sightings(), None, os.environ))
    except AccelhubError as error:
        print(f"accelhub: {error}", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
