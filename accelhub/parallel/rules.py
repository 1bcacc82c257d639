"""What goes wrong when a model is sharded by the plan at hand, and what mends it.

A rule reads the model on the meta device (shapes only, no weights) and the plan so far, and lays over the plan what it
finds missing. It looks at modules, not at names of models, and finds nothing where transformers has learnt to do
without it. `proof` names a model that goes wrong when the rule is taken away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelhub.parallel.derive import refuted
from accelhub.parallel.heads import Deal, Heads, counted_heads, deal, heads_of
from accelhub.parallel.names import (
    COLWISE,
    EMBEDDING,
    GATHERED_HEAD,
    HEAD_NORM,
    KEY_VALUE,
    PACKED_COLWISE,
    REPLICATE,
    ROWWISE,
    Style,
    wildcard,
)
from accelhub.parallel.probes import Seen, forgets_loaded_rows, fused_targets, refuses
from accelhub.types import PlanRepair


@dataclass(frozen=True)
class Request:
    """What a rule looks at.

    Attributes:
        model: a transformers model on the meta device.
        plan: module pattern (`*` for layer numbers) -> style, with the repairs of the rules before.
        tp_size: over how many chips a tensor is split.
        seen: what the model's forward pass does.
        plain_weights: weights must stay one-dimensional shards or whole: under FSDP2, and when they are quantised.
    """

    model: Any
    plan: Mapping[str, str]
    tp_size: int
    seen: Seen
    plain_weights: bool = False

    def attentions(self) -> Iterator[tuple[str, Any]]:
        """Pattern and module of each attention with k_proj that the plan splits."""
        for name, module in self.model.named_modules():
            pattern = wildcard(name)
            if heads_of(module) and self.plan.get(f"{pattern}.k_proj") == COLWISE:
                yield pattern, module

    def children(self, pattern: str) -> dict[str, str]:
        """The plan's entries below a module."""
        return {key: style for key, style in self.plan.items() if key.startswith(f"{pattern}.")}


@dataclass(frozen=True)
class Rule:
    """One thing that goes wrong, and how it is found and mended.

    Attributes:
        proof: TYPE:VARIANT:CHIPS, a model that is right with the rule and goes wrong without it;
            tests/test_architectures.py shows both.
    """

    name: str
    find: Callable[[Request], Iterator[PlanRepair]]
    proof: str


def _head_gates(request: Request) -> Iterator[PlanRepair]:
    for pattern, module in request.attentions():
        heads = heads_of(module)
        for key, style in request.children(pattern).items():
            child = getattr(module, key.rpartition(".")[2], None)
            if heads and style == ROWWISE and getattr(child, "out_features", None) == heads.key_value:
                whole = dict.fromkeys(request.children(pattern), REPLICATE)
                yield PlanRepair(whole, f"{pattern} is replicated: {key} makes one value per KV head out of all heads")
                break


def _heads(request: Request) -> Iterator[PlanRepair]:
    uneven: dict[str, list[tuple[Heads, Deal]]] = {}
    for pattern, module in request.attentions():
        heads = heads_of(module)
        if heads and not (how := deal(heads, request.tp_size)).even:
            uneven.setdefault(pattern, []).append((heads, how))
    for pattern, found in uneven.items():
        heads, how = found[0]
        why = f"{heads.query} query and {heads.key_value} KV heads over {request.tp_size} chips"
        copied = any(how.copies > 1 for _, how in found)
        if max(how.query for _, how in found) == 1 or (request.plain_weights and copied):
            whole = {key: REPLICATE for key, style in request.children(pattern).items() if style in _SPLIT}
            yield PlanRepair(whole, f"{pattern} is replicated: {why} cannot be dealt out")
            continue
        plan = {pattern: Style.ATTENTION}
        for key, style in request.children(pattern).items():
            key_value = key.rpartition(".")[2] in KEY_VALUE
            if key_value and request.plain_weights:
                plan[key] = Style.KV_SLICE
            elif style in _DEALT and (key_value or copied):
                plan[key] = _DEALT[style]
        yield PlanRepair(plan, f"{pattern}: {why}: {_told(how, request.plain_weights)}")


def _fused_heads(request: Request) -> Iterator[PlanRepair]:
    fused = {
        pair for name, module in request.model.named_modules() if (pair := _fused(module, wildcard(name), request.plan))
    }
    for pair, against in refuted(request.model, fused, request.tp_size) if fused else ():
        yield PlanRepair(
            dict.fromkeys(pair, REPLICATE), f"{' and '.join(pair)} are replicated: by the model's own plan, {against}"
        )


def _fused(module: Any, pattern: str, plan: Mapping[str, str]) -> tuple[str, str] | None:
    """The one column-wise child of a module, if it is wider than what the one row-wise child takes; and that one."""
    styles = {name: plan.get(f"{pattern}.{name}") for name, _ in module.named_children()}
    split = {style: [name for name in styles if styles[name] == style] for style in (COLWISE, ROWWISE)}
    if heads_of(module) or not len(split[COLWISE]) == len(split[ROWWISE]) == 1:
        return None
    column, row = split[COLWISE][0], split[ROWWISE][0]
    wide = getattr(getattr(module, column), "out_features", 0) > getattr(getattr(module, row), "in_features", 0)
    return (f"{pattern}.{column}", f"{pattern}.{row}") if wide else None


def _other_heads(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        own = [*module._modules, *module._parameters]
        styles = {key: request.plan[key] for child in own if (key := f"{wildcard(name)}.{child}") in request.plan}
        heads = None if heads_of(module) else counted_heads(module)
        if heads and ROWWISE in styles.values() and heads.query % request.tp_size:
            why = f"{heads.query} heads over {request.tp_size} chips cannot be dealt out"
            yield PlanRepair(dict.fromkeys(styles, REPLICATE), f"{wildcard(name)} is replicated: {why}")


_SPLIT: Final = (COLWISE, ROWWISE, HEAD_NORM)
_DEALT: Final = {COLWISE: Style.COLWISE, ROWWISE: Style.ROWWISE, HEAD_NORM: Style.PARTIAL_GRADIENT}


def _told(how: Deal, plain_weights: bool) -> str:
    if plain_weights:
        return "each chip holds all KV projections and uses the heads of its own"
    parts = [f"query heads are split {how.query} ways"] if how.copies > 1 else []
    if how.sharing > 1:
        parts.append(f"{how.sharing} chips share each KV head")
    if how.copies > 1:
        parts.append(f"{how.copies} chips hold the same")
    return ", ".join(parts)


def _gathered(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        pattern = wildcard(name)
        refusal = refuses(GATHERED_HEAD, module, request.tp_size) if request.plan.get(pattern) == GATHERED_HEAD else ""
        if refusal:
            yield PlanRepair({pattern: REPLICATE}, f"{pattern} is replicated: {refusal}")


def _embeddings(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        style = request.plan.get(wildcard(name), "")
        if style.startswith("embedding_") and any(module.children()):
            yield PlanRepair({wildcard(name): REPLICATE}, f"{wildcard(name)} is replicated: it is no plain look-up")


def _padding(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        style = request.plan.get(wildcard(name), "")
        if style.startswith("embedding_") and forgets_loaded_rows(request.model, module):
            reason = f"{wildcard(name)} is replicated: {type(request.model).__name__} would zero its row for padding"
            yield PlanRepair({wildcard(name): REPLICATE}, reason)


def _ties(request: Request) -> Iterator[PlanRepair]:
    modules = {module: wildcard(name) for name, module in request.model.named_modules()}
    entry, head = (
        modules.get(module) for module in (request.model.get_input_embeddings(), request.model.get_output_embeddings())
    )
    if entry and head and _tied(request.model, entry):
        styles = {request.plan.get(entry), request.plan.get(head)}
        if REPLICATE in styles and styles != {REPLICATE}:
            yield PlanRepair({entry: REPLICATE, head: REPLICATE}, f"{entry} and {head} are replicated: they are one")


def _tied(model: Any, embedding: str) -> bool:
    return f"{embedding}.weight" in {*(model.all_tied_weights_keys or {}).values()}


def _own_parameters(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        pattern = wildcard(name)
        own = [f"{pattern}.{parameter}" for parameter, _ in module.named_parameters(recurse=False)]
        if request.plan.get(pattern) == "all_reduce" and any(key in request.plan for key in own):
            reason = f"{pattern} computes with its own split parameters"
            yield PlanRepair({pattern: Style.PARTIAL_SUM}, reason)


def _fused_halves(request: Request) -> Iterator[PlanRepair]:
    for name, module in request.model.named_modules():
        pattern = wildcard(name)
        shapes = {f"{pattern}.{key}": parameter.shape for key, parameter in module.named_parameters(recurse=False)}
        inner = {shape[-1] for key, shape in shapes.items() if request.plan.get(key) == ROWWISE and len(shape) == 3}
        for key, shape in shapes.items():
            if request.plan.get(key) == COLWISE and len(shape) == 3 and shape[-2] / 2 in inner:
                yield PlanRepair({key: PACKED_COLWISE}, f"{key} holds two halves, gate and up, to be split each")


def _in_place(request: Request) -> Iterator[PlanRepair]:
    for pattern in sorted({wildcard(name) for name in request.seen.changed}):
        if copy := _COPIES.get(request.plan.get(pattern, "")):
            yield PlanRepair(
                {pattern: copy}, f"{pattern}: its output is changed in place, which gradients do not allow"
            )


_COPIES: Final = {ROWWISE: Style.ROWWISE_COPY, EMBEDDING: Style.EMBEDDING_COPY}


def _partial_gradients(request: Request) -> Iterator[PlanRepair]:
    for name, makers in request.seen.fed.items():
        pattern, styles = wildcard(name), {request.plan.get(wildcard(maker)) for maker in makers}
        if pattern not in request.plan and styles & {COLWISE, Style.COLWISE, PACKED_COLWISE}:
            reason = f"{pattern} works on what one chip has made: its gradient is the sum of all chips'"
            yield PlanRepair({pattern: Style.PARTIAL_GRADIENT}, reason)


def _fused_checkpoint(request: Request) -> Iterator[PlanRepair]:
    if targets := fused_targets(request.model, request.plan):
        yield PlanRepair({}, f"{', '.join(targets)}: stored together or interleaved, read whole and then split")


FUSED_CHECKPOINT: Final = Rule("fused checkpoint", _fused_checkpoint, "hrm_text:kv4:2")

RULES: Final = (
    Rule("head gates", _head_gates, "doge:kv2:4"),
    Rule("heads", _heads, "qwen3:kv2:4"),
    Rule("fused heads", _fused_heads, "gpt_neox:kv4:3"),
    Rule("other heads", _other_heads, "minicpm3:kv4:3"),
    Rule("own parameters", _own_parameters, "inkling_text:kv4:2"),
    Rule("fused halves", _fused_halves, "inkling_text:kv4:2"),
    Rule("gathered outputs", _gathered, "qwen2:odd:2"),
    Rule("embeddings", _embeddings, "inkling_text:kv4:2"),
    Rule("padding rows", _padding, "youtu:tied:2"),
    Rule("tied weights", _ties, "youtu:tied:2"),
    Rule("changed in place", _in_place, "llama4_text:kv4:2"),
    Rule("partial gradients", _partial_gradients, "apertus:kv4:2"),
    FUSED_CHECKPOINT,
)
"""In this order: a later rule sees the plan that the earlier ones left."""
