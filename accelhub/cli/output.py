"""How commands print: JSON for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import click

SCHEMA_VERSION: Final = 1


def print_json(content: dict[str, Any]) -> None:
    click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # A pipe has no width: nothing is folded there, so that grep finds whole lines.
    width = None if sys.stdout.isatty() else 10_000
    Console(highlight=False, markup=False, width=width).print(table)


def gib(size: int | None) -> str:
    return "" if size is None else f"{size / 1024**3:.0f} GiB"


def mib(size: int) -> str:
    return f"{size / 1024**3:.2f} GiB" if size >= 1024**3 else f"{size / 1024**2:.2f} MiB"
