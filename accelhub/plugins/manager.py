"""Loads plugins, keeps a broken one from harming the others, and calls hooks with types.

One typed method per hook: nobody outside this file sees pluggy.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

import pluggy

from accelhub.errors import AccelhubError, PluginError, UsageError
from accelhub.messages import say_once
from accelhub.plugins import NAME, spec
from accelhub.types import (
    Absent,
    CompileSettings,
    Emulation,
    Finding,
    Found,
    KernelOffer,
    LaunchSpec,
    PlanRepair,
    Prepared,
    Process,
    Variable,
)

BUILTIN: Final = {"cuda": "accelhub.builtin.cuda", "cpu": "accelhub.builtin.cpu"}


class Manager:
    """The plugins of one process.

    Args:
        environ: `ACCELHUB_PLUGINS` (load only these) and `ACCELHUB_DISABLE_PLUGINS` (load all but these) are read from
            it; both hold names separated by commas.

    Attributes:
        origins: name -> where the plugin comes from, in order of preference: installed plugins by name, then cuda, cpu.
        failures: name -> why a plugin could not be loaded.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.origins: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._pluggy = pluggy.PluginManager(NAME)
        self._pluggy.add_hookspecs(spec)
        installed = sorted(entry_points(group=NAME), key=lambda entry: entry.name)
        for name in _wanted(environ, [*(entry.name for entry in installed), *BUILTIN]):
            for entry in (entry for entry in installed if entry.name == name):
                self._load(name, _origin(entry), entry)
            if name in BUILTIN and name not in self.origins:
                self._load(name, BUILTIN[name], None)

    def _load(self, name: str, origin: str, entry: EntryPoint | None) -> None:
        if name in self.origins:
            self.failures[name] = f"{self.origins[name]} and {origin} both claim the name {name!r}; uninstall one"
            return
        self.origins[name] = origin
        try:
            self.register(name, entry.load() if entry else import_module(origin))
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything; it is recorded, never lost
            self.failures[name] = f"{origin} failed to load: {_words(error)}"

    def register(self, name: str, plugin: object) -> None:
        """Add a plugin object. Raises `pluggy.PluginValidationError` if it implements what is no hook."""
        self._pluggy.register(plugin, name)
        try:
            self._pluggy.check_pending()
        except pluggy.PluginValidationError:
            self._pluggy.unregister(plugin)
            raise
        self.origins.setdefault(name, getattr(plugin, "__name__", type(plugin).__name__))

    def load_failure(self, name: str) -> PluginError | None:
        """The error for somebody who asks for a platform whose plugin could not be loaded."""
        reason = self.failures.get(name)
        return PluginError(f"the plugin for {name!r} cannot be used: {reason}") if reason else None

    # Hooks of one platform ------------------------------------------------------------------------------------------

    def discover(self, name: str, root: Path, environ: Mapping[str, str]) -> Found | Absent | None:
        result = self._call(name, "accelhub_discover", root=root, environ=environ)
        if result is None or isinstance(result, Found | Absent):
            return result
        raise PluginError(f"plugin {name!r} ({self.origins[name]}) discovered {result!r}, neither Found nor Absent")

    def check_chips(self, name: str, found: Found, count: int) -> str:
        return self._call(name, "accelhub_check_chips", found=found, count=count) or ""

    def launch_env(self, name: str, spec: LaunchSpec, environ: Mapping[str, str]) -> Sequence[Variable]:
        return self._call(name, "accelhub_launch_env", spec=spec, environ=environ) or ()

    def prepare_process(self, name: str, process: Process) -> Prepared:
        return self._require(name, "accelhub_prepare_process", process=process)  # type: ignore[no-any-return]

    def compile_settings(self, name: str, device: str) -> CompileSettings:
        return self._require(name, "accelhub_compile_settings", device=device)  # type: ignore[no-any-return]

    def emulator(self, name: str, target: str | None) -> Emulation | None:
        """The emulation of a platform; None if its plugin has none."""
        return self._call(name, "accelhub_emulator", target=target)  # type: ignore[no-any-return]

    # Hooks of every plugin ------------------------------------------------------------------------------------------

    def kernels(self) -> dict[str, Sequence[KernelOffer]]:
        return self._call_all("accelhub_kernels")

    def fix_tp_plan(self, platform: str, model: Any, tp_size: int) -> dict[str, Sequence[PlanRepair]]:
        """Repairs of every plugin; only a failure of `platform`'s own is raised."""
        return self._call_all("accelhub_fix_tp_plan", platform, model=model, tp_size=tp_size)

    def checks(self, root: Path, environ: Mapping[str, str]) -> dict[str, Sequence[Finding]]:
        return self._call_all("accelhub_checks", root=root, environ=environ)

    # ----------------------------------------------------------------------------------------------------------------

    def _call(self, name: str, hook: str, **arguments: Any) -> Any:
        plugin = self._pluggy.get_plugin(name)
        if plugin is None:
            return None
        others = [other for other in self._pluggy.get_plugins() if other is not plugin]
        try:
            return self._pluggy.subset_hook_caller(hook, others)(**arguments)
        except AccelhubError:
            raise
        except Exception as error:
            raise PluginError(f"plugin {name!r} ({self.origins[name]}) failed in {hook}: {_words(error)}") from error

    def _require(self, name: str, hook: str, **arguments: Any) -> Any:
        result = self._call(name, hook, **arguments)
        if result is None:
            raise PluginError(
                f"plugin {name!r} ({self.origins[name]}) does not implement {hook}; it needs a newer version"
            )
        return result

    def _call_all(self, hook: str, required: str = "", **arguments: Any) -> dict[str, Any]:
        """Answers by plugin. One that raises is left out, and that is said, unless it is the `required` one."""
        answers = {}
        for name, plugin in self._pluggy.list_name_plugin():
            try:
                answer = self._call(name, hook, **arguments) if plugin is not None else None
            except AccelhubError as error:
                if name == required:
                    raise
                say_once(f"left out: {error}")
                continue
            if answer:
                answers[name] = answer[0]
        return answers


@cache
def get_manager() -> Manager:
    """The manager of this process, with the plugins that its environment asks for."""
    return Manager(os.environ)


def _wanted(environ: Mapping[str, str], names: Iterable[str]) -> list[str]:
    available = list(dict.fromkeys(names))
    allowed, disabled = _names(environ, "ACCELHUB_PLUGINS"), _names(environ, "ACCELHUB_DISABLE_PLUGINS")
    for name in allowed:
        if name not in available:
            raise UsageError(f"ACCELHUB_PLUGINS names {name!r}; installed plugins are {', '.join(available)}")
    return [name for name in available if name not in disabled and (not allowed or name in allowed)]


def _names(environ: Mapping[str, str], variable: str) -> list[str]:
    return [name.strip() for name in environ.get(variable, "").split(",") if name.strip()]


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
