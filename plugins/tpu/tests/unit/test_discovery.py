"""TPU chips from trees of files, through `accelhub.devices(root)`."""

import pytest

import accelhub
from accelhub.errors import UsageError
from accelhub.types import Found
from accelhub_tpu import discovery
from accelhub_tpu.chips import BY_KIND, check_count

# Taken from facts of torch_tpu 0.2.0, not from the table under test: kind, PCI id, functions per chip, GiB, chips.
KINDS = [
    ("v4", "0x005e", 1, 32, (1, 2, 4, 8)),
    ("v5p", "0x0062", 1, 95, (1, 2, 4, 8)),
    ("v5e", "0x0063", 1, 16, (1, 4, 8)),
    ("v6e", "0x006f", 1, 32, (1, 4, 8)),
    ("v7", "0x0076", 2, 192, (1, 2, 4)),
]


def add(root, slot, vendor, device, *, vfio=True):
    path = root / f"sys/bus/pci/devices/0000:00:{slot:02x}.0"
    path.mkdir(parents=True)
    (path / "vendor").write_text(f"{vendor}\n")
    (path / "device").write_text(f"{device}\n")
    groups = root / "dev/vfio"
    groups.mkdir(parents=True, exist_ok=True)
    (groups / "vfio").touch()  # the control node is in every tree, and is no chip
    (path / "iommu_group").symlink_to(f"../../../kernel/iommu_groups/{slot}")
    if vfio:
        (groups / str(slot)).touch()


def tpu(root):
    return next(row for row in accelhub.devices(root, {}).platforms if row.platform == "tpu")


@pytest.mark.parametrize(("kind", "pci", "functions", "gib", "_legal"), KINDS)
@pytest.mark.parametrize("chips", range(1, 9))
def test_every_kind_with_one_to_eight_chips(tmp_path, kind, pci, functions, gib, _legal, chips):
    for slot in range(chips * functions):
        add(tmp_path, slot, "0x1ae0", pci)
    row = tpu(tmp_path)
    assert (row.state, row.kind, row.chips, row.devices) == ("found", kind, chips, chips * functions)
    assert row.hbm_bytes_per_chip == gib * 2**30
    assert not row.emulated


@pytest.mark.parametrize(("kind", "pci", "functions", "_gib", "legal"), KINDS)
def test_legal_counts_and_what_is_said_of_others(kind, pci, functions, _gib, legal):
    found = Found(kind, max(legal), functions)
    for count in range(1, 10):
        answer = check_count(found, count)
        assert (answer == "") == (count in legal)
        assert not answer or ", ".join(map(str, legal)) in answer
    assert "4 TPU v6e chips here, not 8" in check_count(Found("v6e", 4), 8)


def test_topologies_are_torch_tpus():
    assert BY_KIND["v6e"].topologies == {1: "1,1,1", 4: "2,2,1", 8: "2,4,1"}
    assert BY_KIND["v7"].topologies == {1: "1,1,1,2", 2: "1,2,1,2", 4: "2,2,1,2"}


def test_other_vendors_control_node_and_groups_of_others_are_no_chips(tmp_path):
    add(tmp_path, 1, "0x10de", "0x2330")
    add(tmp_path, 2, "0x1ae0", "0xffff")
    add(tmp_path, 3, "0x1ae0", "0x006f", vfio=False)
    row = tpu(tmp_path)
    assert row.state == "absent"
    assert "0 TPU chips found" in row.reason
    assert "(1 without a group" in row.reason


def test_half_a_chip_and_mixed_kinds_are_broken(tmp_path):
    add(tmp_path, 1, "0x1ae0", "0x0076")
    assert tpu(tmp_path).state == "broken"
    add(tmp_path, 2, "0x1ae0", "0x006f")
    row = tpu(tmp_path)
    assert row.state == "broken"
    assert "several kinds" in row.reason


def test_chips_without_torch_tpu_are_broken_with_the_command_that_mends_it(tmp_path, monkeypatch):
    add(tmp_path, 1, "0x1ae0", "0x006f")
    monkeypatch.setattr(discovery, "torch_tpu_version", lambda: None)
    row = tpu(tmp_path)
    assert (row.state, row.chips) == ("broken", 1)
    assert "pip install 'accelhub-tpu[torch]'" in row.reason
    assert accelhub.devices(tmp_path, {}).default is None  # the CPU does not silently take its place


def test_no_tree_and_unreadable_entries(tmp_path):
    assert tpu(tmp_path).state == "absent"
    (tmp_path / "sys/bus/pci/devices/0000:00:01.0/vendor").mkdir(parents=True)  # reading it fails, for root too
    assert tpu(tmp_path).state == "absent"
    (tmp_path / "b/sys/bus/pci").mkdir(parents=True)
    (tmp_path / "b/sys/bus/pci/devices").write_text("no folder")
    row = tpu(tmp_path / "b")
    assert row.state == "absent"
    assert "cannot be read" in row.reason


def test_a_real_tpu_is_not_emulated_unless_the_chip_is_named(tmp_path):
    add(tmp_path, 1, "0x1ae0", "0x006f")
    with pytest.raises(UsageError, match="refusing to emulate"):
        accelhub.devices(tmp_path, {"ACCELHUB_EMULATE": "tpu"})
    row = accelhub.devices(tmp_path, {"ACCELHUB_EMULATE": "tpu:v5e-8"}).platforms[0]
    assert (row.kind, row.chips, row.emulated) == ("v5e", 8, True)


@pytest.mark.parametrize("target", ["v6e-3", "v9", "v6e-", "6", "v6e-4-4"])
def test_an_unknown_target_lists_the_known_ones(tmp_path, target):
    with pytest.raises(UsageError, match="v6e-1, v6e-4, v6e-8"):
        accelhub.devices(tmp_path, {"ACCELHUB_EMULATE": f"tpu:{target}"})
