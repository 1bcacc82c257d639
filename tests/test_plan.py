"""Plans, made on the meta device in this process: how heads are dealt, what is repaired, derived, proved and held."""

import json

import pytest
from click.testing import CliRunner

import tiny_models
from accelhub.cli import command
from accelhub.errors import PlanError, UsageError
from accelhub.parallel import plan
from accelhub.parallel.heads import Deal, Heads, deal
from accelhub.plugins import hookimpl
from accelhub.plugins.manager import Manager
from accelhub.types import PlanRepair

ATTENTION = "model.layers.*.self_attn"


@pytest.mark.parametrize(
    ("heads", "chips", "split"),
    [
        ((8, 2), 4, (4, 2)),  # two chips share each KV head
        ((8, 1), 4, (4, 1)),
        ((64, 8), 16, (16, 8)),
        ((6, 2), 4, (2, 2)),  # 6 query heads divide over 2 chips only: pairs of chips hold the same
        ((14, 2), 4, (2, 2)),
        ((24, 6), 4, (2, 2)),
        ((40, 10), 8, (2, 2)),
        ((8, 8), 16, (8, 8)),
        ((9, 3), 3, (3, 3)),
        ((9, 3), 2, (1, 1)),  # cannot be dealt out
        ((12, 3), 2, (1, 1)),  # 6 query heads a chip would need one and a half KV heads
        ((10, 5), 4, (1, 1)),
        ((5, 5), 4, (1, 1)),
        ((8, 8), 3, (1, 1)),
    ],
)
def test_heads_are_dealt_so_that_each_chip_has_the_kv_heads_it_uses(heads, chips, split):
    assert deal(Heads(*heads), chips) == Deal(chips, *split)


def glm4_9b(folder, **changes):
    """The shape of GLM-4-9B; only its configuration is needed."""
    from transformers import Glm4Config

    Glm4Config(num_key_value_heads=2, vocab_size=151552, dtype="bfloat16", **changes).save_pretrained(folder)
    return folder


def test_bytes_of_glm4_9b_by_hand(tmp_path):
    made = plan(glm4_9b(tmp_path), 4)
    width, inner, vocabulary, head = 4096, 13696, 151552, 128
    queries, keys = 32 * head, 2 * head
    # q and o are split four ways; two chips share a KV head, so each holds half of k and of v; all but o have a bias
    attention = (2 * width + 1) * queries // 4 + 2 * (width + 1) * keys // 2
    layer = attention + 3 * width * inner // 4 + 4 * width
    parameters = 2 * vocabulary * width // 4 + 40 * layer + width
    assert made.bytes_per_rank == (2 * parameters,) * 4
    assert round(2 * parameters / 2**30, 2) == 4.42  # 6.37 when q, k, v and o are whole


def test_quantised_weights_and_fsdp_keep_k_and_v_whole(tmp_path):
    shared = plan(glm4_9b(tmp_path), 4)
    sliced = plan(tmp_path, 4, fsdp_size=2)
    assert shared.styles[f"{ATTENTION}.k_proj"] == "accelhub_colwise"
    assert sliced.styles[f"{ATTENTION}.k_proj"] == "accelhub_kv_slice"
    assert max(sliced.bytes_per_rank) - max(shared.bytes_per_rank) == 40 * 2 * (4096 + 1) * 256 // 2 * 2
    quantised = plan(glm4_9b(tmp_path, quantization_config={"quant_method": "fp8"}), 4)
    assert quantised.styles == sliced.styles


def test_what_transformers_does_right_is_left_alone(tmp_path):
    made = plan(tiny_models.save("qwen3", tmp_path), 2)
    assert not made.repairs
    assert not made.override
    assert not made.derived


def test_heads_that_cannot_be_dealt_out_are_replicated(tmp_path):
    case = "llama,hidden_size=144,num_attention_heads=9,num_key_value_heads=3"
    made = plan(tiny_models.save_case(case, tmp_path), 2)
    assert made.override == {f"{ATTENTION}.{name}_proj": "replicate" for name in "qkvo"}


def test_a_plan_is_derived_for_gpt2_and_only_as_its_heads_allow(tmp_path):
    made = plan(tiny_models.save("gpt2", tmp_path), 4)
    assert made.derived
    assert made.styles == {
        "transformer.wte": "embedding_rowwise",
        "lm_head": "colwise_gather_output",
        "transformer.h.*.attn": "accelhub_derived_attention",
        "transformer.h.*.attn.c_attn": "accelhub_colwise_thirds",
        "transformer.h.*.attn.c_proj": "accelhub_rowwise",
        "transformer.h.*.mlp.c_fc": "accelhub_colwise",
        "transformer.h.*.mlp.c_proj": "accelhub_rowwise",
    }
    assert set(plan(tmp_path, 3).whole) == {"transformer.h.*.attn.c_proj"}  # 8 heads; the MLP is split 3 ways


@pytest.mark.parametrize(
    ("styles", "against"),
    [
        ({"attn.c_attn": "accelhub_colwise_thirds"}, ""),
        ({"attn.c_attn": "accelhub_qkv_slice"}, ""),
        ({"attn.c_attn": "accelhub_colwise"}, "do not sum to the whole"),  # parts of q, k and v that do not belong
        ({"attn.c_attn": "accelhub_colwise_thirds", "attn.c_proj": None}, "cannot be multiplied"),
        ({"attn.c_attn": "accelhub_colwise_thirds", "attn": None}, "unpack"),  # it counts on all heads' width
    ],
)
def test_a_wrong_plan_is_refuted(tmp_path, styles, against):
    from transformers import GPT2Config, GPT2LMHeadModel

    from accelhub.parallel.derive import _layers
    from accelhub.parallel.planner import meta_model
    from accelhub.parallel.proof import refutation

    right = {"attn": "accelhub_derived_attention", "attn.c_proj": "accelhub_rowwise"}
    tried = {name: style for name, style in (right | styles).items() if style}
    model = meta_model(GPT2LMHeadModel, GPT2Config(n_embd=64, n_head=8, n_layer=2, vocab_size=128))
    layer = next(iter(_layers(model)))
    found = refutation(layer.module, layer.call, tried, 4)
    assert against in found
    assert bool(against) == bool(found)


def test_a_model_that_cannot_be_split_says_what_stopped_it(tmp_path):
    with pytest.raises(
        PlanError, match=r"no tensor-parallel plan for Mamba2.*mixer\.out_proj: .*auto\(\"replicate\"\)"
    ):
        plan(tiny_models.save("mamba2", tmp_path), 2)


def test_experts_are_dealt_out_where_they_are_the_bytes(tmp_path):
    made = plan(tiny_models.save("gpt_oss", tmp_path), 2)
    assert made.ep_size == 2
    assert made.held < 0.52
    assert plan(tmp_path, 8).ep_size == 1  # 4 experts do not divide over 8 chips


def test_a_plugins_repair_is_laid_over_accelhubs_own(tmp_path, monkeypatch):
    class Plugin:
        @hookimpl
        def accelhub_fix_tp_plan(self, model, tp_size):
            assert model.tp_plan[ATTENTION] == "accelhub_attention"
            return [PlanRepair({f"{ATTENTION}.o_proj": "replicate"}, f"{tp_size} chips of ours")]

    manager = Manager({"ACCELHUB_PLUGINS": "cpu"})
    manager.register("ours", Plugin())
    monkeypatch.setattr("accelhub.parallel.planner.get_manager", lambda: manager)
    made = plan(tiny_models.save("qwen3", tmp_path, num_key_value_heads=2), 4)
    assert [(repair.rule, repair.reason) for repair in made.repairs][-1] == ("plugin ours", "4 chips of ours")
    assert made.styles[f"{ATTENTION}.o_proj"] == "replicate"


def test_the_command_prints_the_plan_for_people_and_for_programs(tmp_path):
    folder = str(tiny_models.save("qwen3", tmp_path, num_key_value_heads=2))
    shown = CliRunner().invoke(command, ["plan", "--tp", "4", folder])
    assert shown.exit_code == 0
    assert "8 query and 2 KV heads over 4 chips: 2 chips share each KV head" in shown.output
    content = json.loads(CliRunner().invoke(command, ["plan", "--tp", "4", "--json", folder]).output)
    assert content["schema_version"] == 1
    assert content["plan"][f"{ATTENTION}.k_proj"] == "accelhub_colwise"
    assert content["repairs"][0]["rule"] == "heads"
    whole = sum(parameter.numel() for parameter in tiny_models.make("qwen3", num_key_value_heads=2).parameters())
    assert content["total_bytes"] == 4 * whole
    assert len(content["bytes_per_chip"]) == 4


@pytest.mark.parametrize(
    ("content", "tp_size", "said"),
    [
        (None, 2, "there is no such folder"),
        ("", 2, "there is no config.json in this folder"),
        ('{"model_type": "lla', 2, "not a valid JSON file"),
        ('{"model_type": "nosuch"}', 2, "`nosuch`"),
        ('{"model_type": "clip"}', 2, "'clip', which is no causal language model"),
        ('{"model_type": "llama"}', 0, "tp_size=0 and fsdp_size=1: both must be 1 or more"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path, content, tp_size, said):
    folder = tmp_path / "model"
    if content is not None:
        folder.mkdir()
    if content:
        (folder / "config.json").write_text(content)
    with pytest.raises(UsageError) as refused:
        plan(str(folder), tp_size)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
