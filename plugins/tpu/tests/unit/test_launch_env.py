"""The launch environment of real chips, from torch_tpu's own function (in a child process; no chip needed)."""

import os

from accelhub.types import Found, LaunchSpec
from accelhub_tpu.launch import launch_env


def environment(kind, chips, devices_per_chip=1, **environ):
    spec = LaunchSpec("tpu", Found(kind, chips, devices_per_chip), chips, chips * devices_per_chip)
    return {variable.name: variable.value for variable in launch_env(spec, {**os.environ, **environ})}


def test_a_v6e_slice_of_four():
    variables = environment("v6e", 4)
    addresses = variables["TORCH_TPU_SLICEBUILDER_ADDRESSES"].split(",")
    assert len(set(addresses)) == 4
    assert all(address.startswith("localhost:") for address in addresses)
    assert variables["TORCH_TPU_TOPOLOGY"] == "2,2,1"
    assert variables["TORCH_TPU_XPROF_SESSION_ID"].isdigit()


def test_v7_has_an_address_per_device():
    variables = environment("v7", 2, 2, TORCH_TPU_XPROF_SESSION_ID="17")
    assert len(variables["TORCH_TPU_SLICEBUILDER_ADDRESSES"].split(",")) == 4
    assert variables["TORCH_TPU_TOPOLOGY"] == "1,2,1,2"
    assert variables["TORCH_TPU_XPROF_SESSION_ID"] == "17"  # what the user set stays
