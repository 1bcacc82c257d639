"""Starts `accelhub` as a user would, from a test."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

QUIET = {"PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "2"}


def accelhub(*arguments, timeout=300, **environ):
    """Run the command line in a clean environment; a variable given as None is removed."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACCELHUB_")}
    merged = {**inherited, **QUIET, **environ}
    return subprocess.run(
        [sys.executable, "-m", "accelhub", *map(str, arguments)],
        env={name: value for name, value in merged.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def launch(script, *arguments, chips=2, emulate="tpu", timeout=300, **environ):
    """Launch a script that lies beside the calling test."""
    here = Path(inspect.stack()[1].filename).parent
    options = ("--emulate", emulate) if emulate else ()
    helpers = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    return accelhub(
        "launch", *options, "--chips", chips, here / script, *arguments, timeout=timeout, PYTHONPATH=helpers, **environ
    )
