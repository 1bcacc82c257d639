"""The command line as a user runs it: whole processes, exit codes, one clear line for what cannot work."""

import json
import subprocess
import sys

import pytest

from launching import accelhub


def add_distribution(site, name, version, **entry_points):
    """A package as pip would leave it, for metadata only; GROUP=entry."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"[{group.replace('_', '.')}]\n{entry}\n" for group, entry in entry_points.items()]
    (info / "entry_points.txt").write_text("".join(lines))


def one_line(done, *words):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 or "Usage:" in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "a script.py"
    path.write_text("import sys, os\nprint(os.environ['RANK'], *sys.argv[1:])\n")
    return path


def test_devices_prints_the_documented_json():
    shown = json.loads(accelhub("devices", "--json").stdout)
    assert shown["schema_version"] == 1
    assert shown["default"] in {row["platform"] for row in shown["platforms"]}
    keys = ["platform", "state", "kind", "chips", "devices", "hbm_bytes_per_chip", "reason", "plugin", "emulated"]
    assert all(list(row) == keys for row in shown["platforms"])
    cpu = shown["platforms"][-1]
    assert (cpu["platform"], cpu["state"], cpu["chips"]) == ("cpu", "found", 1)


def test_devices_for_people_names_every_platform():
    lines = accelhub("devices").stdout.splitlines()
    assert any(line.strip().startswith("*") for line in lines)
    assert any("0 TPU chips found under /sys/bus/pci/devices" in line for line in lines)  # whole, not folded


def test_emulated_devices_are_labelled():
    row = json.loads(accelhub("devices", "--json", ACCELHUB_EMULATE="tpu:v6e-4").stdout)["platforms"][0]
    assert (row["kind"], row["chips"], row["emulated"], row["reason"]) == ("v6e", 4, True, "emulated on CPU")
    assert "emulated on CPU" in accelhub("devices", ACCELHUB_EMULATE="tpu:v6e-4").stdout


def test_devices_imports_no_torch_jax_or_vendor():
    code = (
        "import sys, accelhub.cli; sys.argv = ['accelhub', 'devices', '--json']\n"
        "try: accelhub.cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'jax', 'torch_tpu', 'transformers', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("devices", "--root", "/nowhere"), ("/nowhere",)),
        (("launch", "--chips", "0", "x.py"), ("'0' is no number of chips",)),
        (("launch", "--chips", "two", "x.py"), ("'two' is no number of chips",)),
        (("launch", "missing.py"), ("missing.py", "no such file")),
        (("launch", "."), ("it is a folder",)),
        (("launch", "--json", __file__), ("--dry-run",)),
        (("launch", "--emulate", "tpu:v6e-8", "--chips", "3", __file__), ("1, 4, 8",)),
        (("launch", "--emulate", "tpu:v6e-4", "--chips", "8", __file__), ("4 TPU v6e chips",)),
        (("launch", "--emulate", "nope", __file__), ("no plugin of that name", "accelhub-nope")),
        (("launch", "--emulate", "cpu", __file__), ("no emulation",)),
    ],
)
def test_bad_requests(arguments, words):
    one_line(accelhub(*arguments), *words)


def test_an_unknown_platform_and_an_absent_one(script):
    one_line(accelhub("launch", script, ACCELHUB_DEVICE="xpu"), "unknown platform 'xpu'", "tpu, cuda, cpu")
    absent = accelhub("launch", script, ACCELHUB_DEVICE="tpu")
    one_line(absent, "torch_tpu 0.2.0 is installed; 0 TPU chips found under /sys/bus/pci", "--emulate tpu")


def test_a_dry_run_shows_command_and_environment_and_runs_nothing(script):
    done = accelhub(
        "launch",
        "--emulate",
        "tpu",
        "--chips",
        2,
        "--dry-run",
        "--json",
        script,
        "--chips",
        "9",
        TF_CPP_MIN_LOG_LEVEL="0",
    )
    plan = json.loads(done.stdout)
    assert (plan["schema_version"], plan["platform"], plan["chips"], plan["processes"]) == (1, "tpu", 2, 2)
    assert (plan["emulated"], plan["label"]) == (True, "emulated on CPU")
    assert plan["command"][-3:] == [str(script), "--chips", "9"]
    settings = {setting["name"]: setting for setting in plan["environment"]}
    assert settings["ACCELHUB_EMULATE"]["value"] == "tpu:generic-2"
    assert (settings["TF_CPP_MIN_LOG_LEVEL"]["value"], settings["TF_CPP_MIN_LOG_LEVEL"]["source"]) == ("0", "user")
    assert "--chips behind" in done.stderr
    again = accelhub("launch", "--emulate", "tpu", "--dry-run", script, ACCELHUB_DEVICE="cpu")
    assert "emulated on CPU" in again.stdout  # the option wins over the environment


def test_a_launch_on_the_cpu_runs_each_rank_and_marks_its_lines(script):
    done = accelhub("launch", "--chips", 2, script, "--dry-run", "a b", ACCELHUB_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] 0 --dry-run a b", "[rank 1] 1 --dry-run a b"]


def test_one_process_prints_as_if_there_were_no_launcher_and_modules_run(tmp_path):
    (tmp_path / "tool.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    done = accelhub("launch", "-m", "tool", "x", ACCELHUB_DEVICE="cpu", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "__main__ ['x']\n")


@pytest.mark.parametrize(
    ("line", "code"), [("raise ValueError('boom')", 1), ("raise SystemExit(7)", 7), ("os.kill(os.getpid(), 9)", 137)]
)
def test_the_scripts_own_exit_code_is_passed_on(tmp_path, line, code):
    path = tmp_path / "fails.py"
    path.write_text(f"import os\nif os.environ['RANK'] == '1':\n    {line}\n")
    done = accelhub("launch", "--chips", 2, path, ACCELHUB_DEVICE="cpu")
    assert done.returncode == code
    assert code != 1 or "[rank 1] ValueError: boom" in done.stderr
    how = "was ended by SIGKILL" if code == 137 else f"failed with exit code {code}"
    assert done.stderr.splitlines()[-1] == f"accelhub: rank 1 {how}; the other ranks were stopped"


def test_a_plugin_that_raises_is_isolated_and_fatal_to_those_who_ask_for_it(tmp_path, script):
    add_distribution(tmp_path, "accelhub-bad", "1.0", accelhub="bad = bad_plugin")
    (tmp_path / "bad_plugin.py").write_text("raise ImportError('WRONG PACKAGE')")
    rows = json.loads(accelhub("devices", "--json", PYTHONPATH=str(tmp_path)).stdout)["platforms"]
    bad = next(row for row in rows if row["platform"] == "bad")
    assert (bad["state"], bad["plugin"]) == ("broken", "accelhub-bad 1.0")
    assert "ImportError: WRONG PACKAGE" in bad["reason"]
    assert {"tpu", "cpu"} <= {row["platform"] for row in rows}
    one_line(accelhub("launch", script, PYTHONPATH=str(tmp_path), ACCELHUB_DEVICE="bad"), "WRONG PACKAGE")
    assert accelhub("launch", script, PYTHONPATH=str(tmp_path), ACCELHUB_DEVICE="cpu").returncode == 0
    hidden = accelhub("devices", "--json", PYTHONPATH=str(tmp_path), ACCELHUB_DISABLE_PLUGINS="bad").stdout
    assert "WRONG PACKAGE" not in hidden


def test_two_backends_for_one_slot_are_met_before_torch_is_imported(tmp_path, script):
    add_distribution(tmp_path, "torch-neuronx", "2.13.3", torch_backends="torch_neuronx = torch_neuronx:_autoload")
    done = accelhub("launch", script, PYTHONPATH=str(tmp_path), ACCELHUB_DEVICE="cpu")
    one_line(done, "torch-neuronx 2.13.3", "torch", "would abort", "pip uninstall")
