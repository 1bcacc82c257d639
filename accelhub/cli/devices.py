"""`accelhub devices`."""

from __future__ import annotations

from dataclasses import asdict

import click

from accelhub import placement
from accelhub.cli.output import gib, print_json, print_table


@click.command()
@click.option("--root", default="/", metavar="DIR", help="Read another machine's files, copied to DIR.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def devices(root: str, as_json: bool) -> None:
    """Show which accelerators are here, and why others are not.

    Reads files only: no device is touched and torch is not imported.
    """
    found = placement.devices(root)
    if as_json:
        print_json(asdict(found))
        return
    print_table(
        ("", "platform", "state", "kind", "chips", "devices", "HBM/chip", ""),
        (
            (
                "*" if row.platform == found.default else "",
                row.platform,
                row.state,
                row.kind or "",
                str(row.chips),
                str(row.devices),
                gib(row.hbm_bytes_per_chip),
                row.reason,
            )
            for row in found.platforms
        ),
    )
