"""All that a plugin author imports.

A plugin is a module (or any object) with functions that carry the names and arguments of `accelhub.plugins.spec`,
marked with `hookimpl`, and an entry point in the group `accelhub` whose name is the platform's name::

    # pyproject.toml
    [project.entry-points.accelhub]
    mychip = "accelhub_mychip"

    # accelhub_mychip/__init__.py
    from accelhub.plugins import hookimpl
    from accelhub.types import Absent, Found

    @hookimpl
    def accelhub_discover(root, environ):
        chips = len(list(root.glob("dev/mychip[0-9]*")))
        return Found("m1", chips) if chips else Absent("no /dev/mychip*")

A function may leave out arguments it does not need. A name that starts with `accelhub_` and is no hook is an error,
so a typing mistake cannot hide. Import torch and vendor packages inside the functions that need them, never at the top:
`accelhub devices` imports every plugin and must answer in a fraction of a second.
"""

from typing import Final

import pluggy

NAME: Final = "accelhub"
"""Entry-point group and pluggy project name."""

hookimpl: Final = pluggy.HookimplMarker(NAME)

__all__ = ["NAME", "hookimpl"]
