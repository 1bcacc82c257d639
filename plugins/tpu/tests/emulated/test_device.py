"""The emulated device: eager, compiled, gradients, operators that are replaced, and what it says of itself."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's convention
from accelerate.utils import get_max_memory

import accelhub
from accelhub.errors import UsageError
from accelhub_tpu.emulation.targets import LABEL


def close(actual, expected, tolerance=1e-5):
    return (actual.detach().cpu() - expected.detach()).abs().max() <= tolerance * max(1, expected.abs().max())


def test_it_is_the_accelerator_of_this_process():
    assert accelhub.device() == torch.device("tpu:0")
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.zeros(2, device="tpu").device == torch.device("tpu:0")


def test_devices_carries_the_label():
    shown = accelhub.devices()
    tpu = shown.platforms[0]
    assert shown.default == "tpu"
    assert (tpu.platform, tpu.state, tpu.emulated) == ("tpu", "found", True)
    assert LABEL in tpu.reason
    assert accelhub.platform() == tpu
    assert str(tpu) == f"tpu generic x 1 ({LABEL})"


def test_eager_operations_run_in_torch_tpu():
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    result = a.to("tpu") @ b.to("tpu")
    assert result.device.type == "tpu"
    assert close(result, a @ b)


def test_compile_uses_the_tpu_backend_with_static_shapes():
    calls = []

    def function(x):
        calls.append(tuple(x.shape))
        return (x * 2).sin().sum()

    compiled = accelhub.compile(function)
    for length in (3, 5, 3):
        x = torch.arange(length, dtype=torch.float32)
        assert close(compiled(x.to("tpu")), function(x))
    settings = accelhub.compile_settings()
    assert (settings.backend, settings.dynamic, settings.padding_multiple) == ("tpu", False, 128)


def test_compiling_for_dynamic_shapes_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="static shapes only"):
        accelhub.compile(torch.sin, dynamic=True)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_sdpa_runs_without_touching_the_model(compiled, causal):
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 9, 16) for _ in range(3))

    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    function = accelhub.compile(attend) if compiled else attend
    result = function(query.to("tpu"), key.to("tpu"), value.to("tpu"))
    assert close(result, attend(query, key, value), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool, torch.bfloat16])
@pytest.mark.parametrize(("shape", "dim"), [((6,), 0), ((2, 5), 1), ((2, 5), 0), ((3, 4, 2), -2), ((), 0), ((0,), 0)])
def test_cumsum(shape, dim, dtype):
    x = torch.randint(0, 2, shape).to(dtype)
    result, expected = x.to("tpu").cumsum(dim), x.cumsum(dim)
    assert result.dtype == expected.dtype
    assert torch.equal(result.cpu(), expected)


def test_cumsum_compiled_with_gradients_and_dtype():
    x = torch.randn(3, 5)
    on_tpu, on_cpu = (x.clone().to(device).requires_grad_() for device in ("tpu", "cpu"))
    weights = torch.randn(3, 5)
    (accelhub.compile(lambda t: t.cumsum(1))(on_tpu) * weights.to("tpu")).sum().backward()
    (on_cpu.cumsum(1) * weights).sum().backward()
    assert close(on_tpu.grad, on_cpu.grad)
    assert torch.ones(3, device="tpu").cumsum(0, dtype=torch.int32).dtype == torch.int32


@pytest.mark.parametrize("compiled", [False, True])
def test_grouped_mm_with_gradients_equals_one_product_per_group(compiled):
    torch.manual_seed(0)
    rows, weights = torch.randn(12, 8), torch.randn(3, 8, 16)
    ends = torch.tensor([4, 4, 12], dtype=torch.int32)  # the second group is empty
    on_tpu = [tensor.clone().to("tpu").requires_grad_() for tensor in (rows, weights)]
    on_cpu = [tensor.clone().requires_grad_() for tensor in (rows, weights)]
    function = accelhub.compile(F.grouped_mm) if compiled else F.grouped_mm
    result = function(on_tpu[0], on_tpu[1], offs=ends.to("tpu"))
    expected = torch.cat([on_cpu[0][:4] @ on_cpu[1][0], on_cpu[0][4:] @ on_cpu[1][2]])
    assert close(result, expected)
    result.square().sum().backward()
    expected.square().sum().backward()
    for actual, reference in zip(on_tpu, on_cpu, strict=True):
        assert close(actual.grad, reference.grad)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_with_adamw_equals_the_cpu(compiled):
    losses = {}
    for device in ("cpu", "tpu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
        )
        model = model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        forward = accelhub.compile(model) if compiled and device == "tpu" else model
        x, y = torch.randn(16, 8).to(device), torch.randint(4, (16,)).to(device)
        losses[device] = []
        for _ in range(5):
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[device].append(loss.item())
        losses[device].append(model[0].weight.detach().cpu())
    assert losses["tpu"][:5] == pytest.approx(losses["cpu"][:5], abs=1e-4)
    assert close(losses["tpu"][5], losses["cpu"][5], 1e-4)


def test_device_map_auto_still_loads_on_the_cpu_which_is_why_accelhub_auto_exists(tmp_path):
    from transformers import AutoModelForCausalLM

    import tiny_models

    folder = tiny_models.save("qwen3", tmp_path)
    assert 0 not in get_max_memory()  # accelerate sees no accelerator at all
    assert AutoModelForCausalLM.from_pretrained(folder, device_map="auto").device.type == "cpu"
    assert AutoModelForCausalLM.from_pretrained(folder, device_map=accelhub.auto()).device.type == "tpu"
