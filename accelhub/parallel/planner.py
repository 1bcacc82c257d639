"""The plan by which a model is sharded: the model's own or a derived one, with every repair that it needs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from accelhub.errors import PlanError
from accelhub.parallel.derive import derive_plan
from accelhub.parallel.experts import without, worth_dealing
from accelhub.parallel.probes import look
from accelhub.parallel.rules import FUSED_CHECKPOINT, RULES, Request
from accelhub.parallel.sizes import bytes_per_rank
from accelhub.plugins.manager import get_manager
from accelhub.types import PlanRepair


@dataclass(frozen=True)
class Repair:
    """A change to the plan: the rule that made it, why, and what it lays over the plan."""

    rule: str
    reason: str
    plan: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class Plan:
    """How a model is sharded.

    Attributes:
        architecture: the model's class.
        tp_size: over how many chips each tensor is split.
        fsdp_size: over how many groups of `tp_size` chips the parameters are also dealt by FSDP2.
        ep_size: over how many chips whole experts are dealt out instead of being split; 1 if they are not.
        styles: the effective plan: module pattern, with `*` for layer numbers -> style.
        own: the plan that the model brings; empty where it was derived.
        repairs: what was changed in it.
        whole: blocks of a derived plan that could not be split, and why.
        total_bytes: of all parameters, tied ones once, in the model's data type.
        bytes_per_rank: of the parameters that each chip of a tensor-parallel group holds, before FSDP2.
    """

    architecture: str
    tp_size: int
    fsdp_size: int
    ep_size: int
    styles: dict[str, str] = field(hash=False)
    own: dict[str, str] = field(hash=False)
    repairs: tuple[Repair, ...]
    whole: dict[str, str] = field(hash=False)
    total_bytes: int
    bytes_per_rank: tuple[int, ...]

    @property
    def override(self) -> dict[str, str]:
        """What has to be laid over the plan that the model brings."""
        return {key: style for key, style in self.styles.items() if self.own.get(key) != style}

    @property
    def derived(self) -> bool:
        return not splits_layers(self.own)

    @property
    def held(self) -> float:
        """The fraction of the parameters that the fullest chip holds."""
        return max(self.bytes_per_rank) / self.total_bytes

    @property
    def reads_fused_tensors(self) -> bool:
        return any(repair.rule == FUSED_CHECKPOINT.name for repair in self.repairs)


def make_plan(
    model_class: Any,
    config: Any,
    tp_size: int,
    fsdp_size: int = 1,
    platform: str = "",
    plain_weights: bool = False,
) -> Plan:
    """The plan for a model class and a configuration. Builds the model on the meta device: no weights are needed.

    Args:
        platform: whose plugin must not fail; others are left out if they do, and that is said.
        plain_weights: every weight must be whole or split one way over all chips. So it is in any case with FSDP2 and
            for quantised weights.

    Raises:
        PlanError: there is no plan, and none can be derived.
        PluginError: the plugin of `platform` failed.
    """
    from accelhub.parallel.styles import provide

    provide()
    model = meta_model(model_class, config)
    plain = plain_weights or fsdp_size > 1 or getattr(config, "quantization_config", None) is not None
    own = dict(model.tp_plan or {})
    styles, whole, experts, repairs = dict(own), {}, {}, []
    if tp_size > 1:
        if not splits_layers(own):
            derived = derive_plan(model, tp_size, plain)
            styles, whole = derived.plan | own, derived.whole
        experts = worth_dealing(model, styles, tp_size)
        if not own and not experts and not splits_layers(styles):
            raise _no_plan(model_class, tp_size, whole)
        for repair in _repairs(model, styles, tp_size, plain, platform):
            styles |= repair.plan
            repairs.append(repair)
    return Plan(
        architecture=model_class.__name__,
        tp_size=tp_size,
        fsdp_size=fsdp_size,
        ep_size=tp_size if experts else 1,
        styles=styles,
        own=own,
        repairs=tuple(repairs),
        whole=whole,
        total_bytes=sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        bytes_per_rank=bytes_per_rank(model, without(styles, experts) | experts, tp_size),
    )


def meta_model(model_class: Any, config: Any) -> Any:
    """The model on the meta device, in the data type that its configuration names."""
    import torch

    with torch.device("meta"):
        return model_class._from_config(copy.deepcopy(config))  # building a model writes to its configuration


def splits_layers(plan: Mapping[str, str]) -> bool:
    """Whether a plan says anything of the layers, beyond embedding and head."""
    return any("*" in pattern for pattern in plan)


def _no_plan(model_class: Any, tp_size: int, whole: Mapping[str, str]) -> PlanError:
    reasons = "; ".join(f"{block}: {reason}" for block, reason in whole.items())
    return PlanError(
        f"transformers has no tensor-parallel plan for {model_class.__name__}, and none can be derived for"
        f" {tp_size} chips: {reasons or 'its layers are not projections in and out'};"
        f' device_map=accelhub.auto("replicate") loads a whole copy on each'
    )


def _repairs(model: Any, styles: Mapping[str, str], tp_size: int, plain: bool, platform: str) -> Iterator[Repair]:
    """Repairs by accelhub's rules, then those of plugins. `styles` is to be amended between two of them."""
    seen = look(model)
    for rule in RULES:
        for found in _distinct(rule.find(Request(model, styles, tp_size, seen, plain))):
            yield Repair(rule.name, found.reason, dict(found.plan))
    model._tp_plan = dict(styles)  # the setter would warn of a head that is tied
    for plugin, offered in get_manager().fix_tp_plan(platform, model, tp_size).items():
        for found in offered:
            yield Repair(f"plugin {plugin}", found.reason, dict(found.plan))


def _distinct(found: Iterable[PlanRepair]) -> list[PlanRepair]:
    """Without repetitions: a rule finds the same in every layer."""
    return list({repair.reason: repair for repair in found}.values())
