"""`accelhub plan`."""

from __future__ import annotations

import os

import click

from accelhub import parallel
from accelhub.cli.output import mib, print_json, print_table
from accelhub.parallel.sharding import explain


@click.command()
@click.argument("model")
@click.option("--tp", "tp_size", type=int, required=True, metavar="N", help="Split each tensor over N chips.")
@click.option(
    "--fsdp", "fsdp_size", type=int, default=1, metavar="M", help="Deal parameters over M such groups (FSDP2)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(model: str, tp_size: int, fsdp_size: int, as_json: bool) -> None:
    """Show how MODEL, a folder or a name on the Hub, would be sharded, what is repaired, and what each chip holds.

    Reads its configuration only: no weights and no chips are needed.
    """
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # a vendor's backend is slow to load, and not needed
    made = parallel.plan(model, tp_size, fsdp_size)
    if as_json:
        print_json(
            {
                "model": model,
                "architecture": made.architecture,
                "tp_size": made.tp_size,
                "fsdp_size": made.fsdp_size,
                "ep_size": made.ep_size,
                "derived": made.derived,
                "plan": made.styles,
                "repairs": [
                    {"rule": repair.rule, "reason": repair.reason, "plan": repair.plan} for repair in made.repairs
                ],
                "whole": made.whole,
                "total_bytes": made.total_bytes,
                "bytes_per_chip": made.bytes_per_rank,
            }
        )
        return
    changed = made.override
    print_table(
        ("module", "style", ""),
        ((pattern, style, "changed" if pattern in changed else "") for pattern, style in made.styles.items()),
    )
    for line in explain(made):
        click.echo(f"- {line}")
    fullest = max(made.bytes_per_rank)
    click.echo(
        f"{made.architecture}: {mib(made.total_bytes)} of parameters, at most {mib(fullest)} a chip"
        f" ({fullest / made.total_bytes:.0%}) at tp {made.tp_size}"
        + (f", before FSDP2 deals them over {made.fsdp_size}" if made.fsdp_size > 1 else "")
    )
