"""The command line: one small file a command, which prints and decides nothing."""

import sys

import click

from accelhub.cli.devices import devices
from accelhub.cli.launch import launch
from accelhub.cli.plan import plan
from accelhub.errors import AccelhubError, ExitCode


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="accelhub", message="%(prog)s %(version)s")
def command() -> None:
    """One PyTorch script on TPU, Trainium, CUDA and CPU."""


command.add_command(devices)
command.add_command(launch)
command.add_command(plan)


def main() -> None:
    """Entry point. An `AccelhubError` becomes one line on stderr and exit code 2."""
    try:
        command(prog_name="accelhub")
    except AccelhubError as error:
        click.echo(f"accelhub: {error}", err=True)
        sys.exit(ExitCode.USAGE)
