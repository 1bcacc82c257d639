"""`accelhub launch`."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any, Final, Literal

import click

from accelhub.cli.output import print_json, print_table
from accelhub.errors import UsageError
from accelhub.launch.plan import LaunchPlan, plan_launch
from accelhub.plugins.manager import get_manager

_OPTIONS: Final = ("--chips", "--emulate", "--dry-run")


class _Chips(click.ParamType[Any]):
    name = "N|all"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int | Literal["all"]:
        if value == "all":
            return "all"
        if not value.isdigit() or int(value) < 1:
            self.fail(f"{value!r} is no number of chips: give 1, 2, ... or all", param, ctx)
        return int(value)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--chips", type=_Chips(), default="all", show_default=True, help="On how many chips of this host to run.")
@click.option(
    "--emulate", metavar="PLATFORM[:TARGET]", help="Run without the chips, emulated by the platform's plugin."
)
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module's name, as with python -m.")
@click.option("--dry-run", is_flag=True, help="Print what would run, with its environment, and stop.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: print JSON.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    chips: int | Literal["all"],
    emulate: str | None,
    module: bool,
    dry_run: bool,
    as_json: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT on this host's chips, one process per device.

    Options go before SCRIPT; everything behind it belongs to the script. The exit code is the script's own.
    """
    if as_json and not dry_run:
        raise UsageError("--json prints a plan: use it with --dry-run")
    for option in _OPTIONS:
        if any(argument == option or argument.startswith(f"{option}=") for argument in arguments):
            click.echo(
                f"accelhub: {option} behind {script} goes to the script; accelhub's options go before it", err=True
            )
    plan = plan_launch(get_manager(), os.environ, script, arguments, chips=chips, emulate=emulate, module=module)
    if dry_run:
        _show(plan, as_json=as_json)
        return
    click.echo(f"accelhub: {plan.headline}", err=True)

    from accelhub.launch.run import run

    failure = run(plan)
    if failure is not None:
        if failure.reason:
            click.echo(f"accelhub: {failure.reason}", err=True)
        sys.exit(failure.exit_code)


def _show(plan: LaunchPlan, *, as_json: bool) -> None:
    spec = plan.spec
    if as_json:
        print_json(
            {
                "platform": spec.platform,
                "kind": spec.found.kind,
                "chips": spec.chips,
                "processes": spec.processes,
                "emulated": spec.emulation is not None,
                "label": spec.emulation.label if spec.emulation else "",
                "command": list(plan.command),
                "environment": [asdict(setting) for setting in plan.environment],
            }
        )
        return
    import shlex

    click.echo(f"{plan.headline}\n\n{shlex.join(plan.command)}")
    print_table(
        ("variable", "value", "set by", "reason"),
        ((setting.name, setting.value, setting.source, setting.reason) for setting in plan.environment),
    )
