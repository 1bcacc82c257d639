"""Every hook is documented with its exact signature, and has a test here that carries its name."""

import inspect
from pathlib import Path

import pluggy
import pytest

from accelhub.errors import PluginError, UsageError
from accelhub.platforms import survey
from accelhub.plugins import hookimpl, spec
from accelhub.plugins.manager import Manager
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

HOOKS = [name for name in vars(spec) if name.startswith("accelhub_")]
DOCS = (Path(__file__).parents[1] / "docs/hooks.md").read_text()
CHIPS = Found("m1", 2, 1, 8 * 2**30)


class Chip:
    """A plugin that answers every hook."""

    @hookimpl
    def accelhub_discover(self, root, environ):
        return CHIPS if (root / "dev/chip").exists() else Absent(f"no chip; {environ['WHY']}")

    @hookimpl
    def accelhub_check_chips(self, found, count):
        return "" if count == found.chips else "only all of them"

    @hookimpl
    def accelhub_launch_env(self, spec, environ):
        return [Variable("CHIPS", str(spec.chips), environ["WHY"])]

    @hookimpl
    def accelhub_prepare_process(self, process):
        return Prepared(f"chip:{process.local_rank}")

    @hookimpl
    def accelhub_compile_settings(self, device):
        return CompileSettings(backend=device.partition(":")[0], dynamic=False)

    @hookimpl
    def accelhub_emulator(self, target):
        return Emulation(target or "m1-1", Found("m1", 1), "emulated")

    @hookimpl
    def accelhub_kernels(self):
        return [KernelOffer("fast", "rms_norm", "own", ("Norm",), ("float32",), lambda: abs, abs)]

    @hookimpl
    def accelhub_fix_tp_plan(self, model, tp_size):
        return [PlanRepair({model: "replicate"}, f"{tp_size} chips")]

    @hookimpl
    def accelhub_checks(self, root, environ):
        return [Finding("driver", ok=False, evidence=str(root), remedy=environ["WHY"])]


@pytest.fixture
def manager():
    made = Manager({"ACCELHUB_PLUGINS": "cpu"})
    made.register("chip", Chip())
    return made


def test_accelhub_discover(manager, tmp_path):
    assert manager.discover("chip", tmp_path, {"WHY": "none"}) == Absent("no chip; none")
    (tmp_path / "dev/chip").mkdir(parents=True)
    assert manager.discover("chip", tmp_path, {}) is CHIPS


def test_accelhub_check_chips(manager):
    assert manager.check_chips("chip", CHIPS, 2) == ""
    assert manager.check_chips("chip", CHIPS, 1) == "only all of them"


def test_accelhub_launch_env(manager):
    found = manager.launch_env("chip", LaunchSpec("chip", CHIPS, 2, 2), {"WHY": "so"})
    assert found == [Variable("CHIPS", "2", "so")]
    assert manager.launch_env("cpu", LaunchSpec("cpu", CHIPS, 2, 2), {}) == ()


def test_accelhub_prepare_process(manager):
    assert manager.prepare_process("chip", Process(local_rank=3)) == Prepared("chip:3")


def test_accelhub_compile_settings(manager):
    assert manager.compile_settings("chip", "chip:0") == CompileSettings(backend="chip", dynamic=False)


def test_accelhub_emulator(manager):
    assert manager.emulator("chip", "m1-4").target == "m1-4"
    assert manager.emulator("cpu", None) is None


def test_accelhub_kernels(manager):
    (offer,) = manager.kernels()["chip"]
    assert (offer.op, offer.load()(-1)) == ("rms_norm", 1)
    assert "cpu" not in manager.kernels()


def test_accelhub_fix_tp_plan(manager):
    assert manager.fix_tp_plan("cpu", "model.q", 4) == {"chip": [PlanRepair({"model.q": "replicate"}, "4 chips")]}


def test_accelhub_checks(manager, tmp_path):
    (finding,) = manager.checks(tmp_path, {"WHY": "load it"})["chip"]
    assert (finding.ok, finding.evidence, finding.remedy) == (False, str(tmp_path), "load it")


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_heading_with_its_signature_and_a_test(hook):
    signature = str(inspect.signature(getattr(spec, hook), eval_str=False)).replace("'", "")
    assert f"\n## `{hook}{signature}`\n" in DOCS
    assert f"test_{hook}" in globals()


def test_a_name_that_is_no_hook_is_refused(manager):
    class Typo:
        @hookimpl
        def accelhub_discovr(self):
            return None

    with pytest.raises(pluggy.PluginValidationError, match="accelhub_discovr"):
        manager.register("typo", Typo())


def test_an_exception_in_a_hook_names_plugin_and_hook_and_errors_of_ours_pass(manager, tmp_path):
    class Bad:
        @hookimpl
        def accelhub_discover(self):
            raise KeyError("gone")

        @hookimpl
        def accelhub_emulator(self):
            raise UsageError("no such target")

    manager.register("bad", Bad())
    with pytest.raises(PluginError, match=r"'bad'.*accelhub_discover.*KeyError"):
        manager.discover("bad", tmp_path, {})
    with pytest.raises(UsageError, match="no such target"):
        manager.emulator("bad", None)


def test_lists_of_plugins():
    assert list(Manager({"ACCELHUB_PLUGINS": "cpu"}).origins) == ["cpu"]
    assert "cuda" not in Manager({"ACCELHUB_DISABLE_PLUGINS": "cuda, tpu"}).origins
    with pytest.raises(UsageError, match="names 'nope'"):
        Manager({"ACCELHUB_PLUGINS": "nope"})


def test_a_plugin_that_fails_is_left_out_and_said_unless_its_platform_is_in_use(manager, caplog):
    class Bad:
        @hookimpl
        def accelhub_fix_tp_plan(self):
            raise KeyError("gone")

    manager.register("bad", Bad())
    assert list(manager.fix_tp_plan("chip", "model.q", 2)) == ["chip"]
    assert "left out: plugin 'bad'" in caplog.text
    with pytest.raises(PluginError, match="'bad'"):
        manager.fix_tp_plan("bad", "model.q", 2)


@pytest.mark.parametrize("answer", [UsageError("no driver"), "three chips"])
def test_a_discovery_that_fails_or_answers_nonsense_is_a_broken_platform(manager, tmp_path, answer):
    class Bad:
        @hookimpl
        def accelhub_discover(self):
            if isinstance(answer, Exception):
                raise answer
            return answer

    manager.register("bad", Bad())
    (bad,) = (sighting.shown for sighting in survey(manager, tmp_path, {"WHY": ""}) if sighting.name == "bad")
    assert bad.state == "broken"
    assert str(answer) in bad.reason
