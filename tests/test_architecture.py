"""The floors of docs/architecture.md: a file imports only from floors below its own, or from its own room."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "accelhub"
FLOORS = {
    room.rstrip("/"): int(floor)
    for floor, rooms in re.findall(r"^\| (\d) \| ([^|]+) \|", (REPOSITORY / "docs/architecture.md").read_text(), re.M)
    for room in re.findall(r"`([a-z_]+/?)`", rooms)
}
FILES = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or not path.stem.startswith("__")]


def room(path):
    inside = path.relative_to(PACKAGE)
    return inside.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_floors_below(path):
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [node.module] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            if module and module.startswith("accelhub."):
                imported = module.split(".")[1]
                assert imported == room(path) or FLOORS[imported] < FLOORS[room(path)], f"line {node.lineno}: {module}"


def test_every_room_stands_on_a_floor():
    assert {room(path) for path in FILES} == FLOORS.keys()
