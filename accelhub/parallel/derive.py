"""A plan for a model that transformers has none for, read from what its forward pass does.

The usual structure: in each layer, projections that take the same input (column-wise) are followed by one that takes
what was made of them (row-wise). Each such block is found by watching the linear layers of one forward pass on the
meta device, and is split only if `proof` shows that the parts of the model's own layer sum to the whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from accelhub.parallel.attention import heads_owner
from accelhub.parallel.cuts import is_transposed
from accelhub.parallel.heads import counted_heads, heads_of
from accelhub.parallel.names import COLWISE, EMBEDDING, GATHERED_HEAD, ROWWISE, Style, wildcard
from accelhub.parallel.proof import Call, refutation
from accelhub.parallel.rehearsal import rehearse


@dataclass(frozen=True)
class Derived:
    """A plan, and what it leaves whole: block -> what speaks against splitting it."""

    plan: dict[str, str]
    whole: dict[str, str]


@dataclass(frozen=True)
class Use:
    """A call of a module that has weights: its name within the layer, and which tensor it was given."""

    name: str
    module: Any
    given: tuple[int, ...]

    @property
    def width(self) -> tuple[int, int]:
        """Inputs and outputs of a linear layer; (0, 0) for any other module."""
        if is_transposed(self.module):
            return tuple(self.module.weight.shape)
        return getattr(self.module, "in_features", 0), getattr(self.module, "out_features", 0)


@dataclass
class Seen:
    """What one layer did in the forward pass."""

    name: str
    module: Any
    call: Call
    modules: set[int]
    uses: list[Use] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """Projections that take the same input, then the one that takes what was made of them."""

    columns: list[Use]
    between: list[Use]
    row: Use

    @property
    def ancestor(self) -> str:
        """The innermost module, within the layer, that holds all of them."""
        paths = [use.name.split(".")[:-1] for use in (*self.columns, self.row)]
        common = []
        for names in zip(*paths, strict=False):
            if len(set(names)) > 1:
                break
            common.append(names[0])
        return ".".join(common)


def derive_plan(model: Any, tp_size: int, plain_weights: bool) -> Derived:
    """Derive a plan. Where nothing can be split, only embedding and head are, and `whole` says why.

    Args:
        model: a transformers model on the meta device.
        tp_size: over how many chips; heads that do not divide are dealt as far as they go.
        plain_weights: as in `rules.Request`.
    """
    plan: dict[str, str] = {}
    whole: dict[str, str] = {}
    try:
        layers = list(_layers(model))
    except Exception as error:  # noqa: BLE001 - whatever a model needs that the meta device lacks
        reason = (str(error).strip().splitlines() or [""])[0]
        return Derived(_ends(model), {"the model": f"its forward pass does not run on the meta device: {reason}"})
    for layer in layers:
        if reason := _bar(layer):
            whole[wildcard(layer.name)] = reason
    for layer in layers:
        prefix = wildcard(layer.name)
        if prefix in whole:
            continue
        for block in _blocks(layer.uses):
            styles, against = _split(layer, block, plan, tp_size, plain_weights)
            if against:
                whole[f"{prefix}.{wildcard(block.row.name)}"] = against
            plan |= styles
    return Derived(_ends(model) | plan, whole)


def _bar(layer: Seen) -> str:
    """Why nothing that holds for a layer in one pass need hold in the next; "" if it does."""
    if {id(module) for module in layer.module.modules()} != layer.modules:
        return "it exchanges its own modules while it runs"
    if any(_draws(module) for module in layer.module.modules()):
        return "it draws random numbers"
    return ""


def _draws(module: Any) -> bool:
    own = [kind for kind in type(module).__mro__ if not kind.__module__.startswith("torch.")]
    functions = {name: inspect.unwrap(each) for kind in own for name, each in vars(kind).items() if callable(each)}
    return any(
        not name.lstrip("_").startswith("init") and _RANDOM & {*each.__code__.co_names}
        for name, each in functions.items()
        if inspect.isfunction(each)
    )


_RANDOM: Final = {"rand", "randn", "randint", "randperm", "multinomial", "bernoulli"}


def refuted(model: Any, pairs: set[tuple[str, str]], tp_size: int) -> Iterator[tuple[tuple[str, str], str]]:
    """Of pairs of patterns, a column-wise and a row-wise projection of one layer, those that are wrong so; and why."""
    for layer in _layers(model):
        names = {f"{wildcard(layer.name)}.{wildcard(name)}": name for name, _ in layer.module.named_modules()}
        for pair in pairs:
            if names.keys() >= {*pair}:
                styles = dict(zip((names[pattern] for pattern in pair), (COLWISE, ROWWISE), strict=True))
                if against := refutation(layer.module, layer.call, styles, tp_size):
                    yield pair, against


def _split(
    layer: Seen, block: Block, plan: Mapping[str, str], tp_size: int, plain_weights: bool
) -> tuple[dict[str, str], str]:
    """The leanest styles of a block that are proved and do not contradict the plan; or what speaks against the last."""
    against = "it is not built as usual"
    for styles in _candidates(layer, block):
        named = {f"{wildcard(layer.name)}.{wildcard(inner)}": style for inner, style in styles.items()}
        if len(named) < len(styles) or any(plan.get(key, style) != style for key, style in named.items()):
            against = "a plan cannot tell its layers apart"
            continue
        against = refutation(layer.module, layer.call, styles, tp_size, plain_weights)
        if not against:
            return named, ""
    return {}, against


def _layers(model: Any) -> Iterator[Seen]:
    """One layer of each kind in the model's lists of layers, with what it did in a forward pass."""
    import torch

    lists = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)}
    outer = {name for name in lists if not any(name.startswith(f"{other}.") for other in lists)}
    seen: dict[str, Seen] = {}
    current: list[Seen] = []
    hooks = []

    def enter(name: str) -> Any:
        def hook(module: Any, args: Any, kwargs: Any) -> None:
            seen[name] = Seen(name, module, Call(args, kwargs), before[name])
            current.append(seen[name])

        return hook

    def leave(_module: Any, _args: Any, _output: Any) -> None:
        current.pop()

    def use(name: str) -> Any:
        def hook(module: Any, args: Any) -> None:
            if current and args and isinstance(args[0], torch.Tensor):
                given = (args[0].untyped_storage()._cdata, args[0].storage_offset(), args[0].numel())
                current[-1].uses.append(Use(name, module, given))
                kept.append(args[0])  # so that no later tensor gets its address

        return hook

    kept: list[Any] = []
    before = {}
    for name in outer:
        for index, layer in lists[name].named_children():
            before[f"{name}.{index}"] = {id(inner) for inner in layer.modules()}
            hooks.append(layer.register_forward_pre_hook(enter(f"{name}.{index}"), with_kwargs=True))
            hooks.append(layer.register_forward_hook(leave))
            for inner, module in layer.named_modules():
                if inner and next(module.parameters(recurse=False), None) is not None:
                    hooks.append(module.register_forward_pre_hook(use(inner)))
    try:
        rehearse(model)
    finally:
        for hook in hooks:
            hook.remove()
    kinds: set[Any] = set()
    for layer in seen.values():
        kind = (wildcard(layer.name), *((use.name, use.width) for use in layer.uses))
        if kind not in kinds:
            kinds.add(kind)
            yield layer


def _blocks(uses: list[Use]) -> Iterator[Block]:
    rest = list(uses)
    while rest:
        first = rest.pop(0)
        if first.width == (0, 0):
            continue
        columns, between = [first], []
        while rest and rest[0].width != (0, 0) and rest[0].given == first.given:
            columns.append(rest.pop(0))
        following = list(rest)
        while following and following[0].width == (0, 0):
            between.append(following.pop(0))
        if following and _fits(columns, following[0]):
            yield Block(columns, between, following[0])
            rest = following[1:]


def _fits(columns: list[Use], row: Use) -> bool:
    """Whether the row's inputs can have been made of the columns' outputs."""
    widest = max(use.width[1] for use in columns)
    return row.width[0] == widest or (len(columns) == 1 and row.width[0] < widest)


def _candidates(layer: Seen, block: Block) -> Iterator[dict[str, str]]:
    """Ways to split a block, by name within the layer, the leanest first."""
    ancestor, names = block.ancestor, [use.name for use in block.columns]
    holder = layer.module.get_submodule(ancestor) if ancestor else None
    owner, heads = heads_owner(holder) if holder else None, heads_of(holder)
    fused = block.columns[0].width[1] if len(block.columns) == 1 else 0
    if not heads and owner is None:
        plain = not any(is_transposed(use.module) for use in (*block.columns, block.row))
        row = {block.row.name: ROWWISE if plain else Style.ROWWISE}
        if fused == 2 * block.row.width[0]:
            yield dict.fromkeys(names, Style.COLWISE_HALVES) | row
        yield dict.fromkeys(names, COLWISE if plain else Style.COLWISE) | row
        return
    rest = {use.name: Style.PARTIAL_GRADIENT for use in block.between} | {block.row.name: Style.ROWWISE}
    rest |= dict.fromkeys(_sinks(layer.module, holder if heads else owner), Style.COLWISE)
    if heads:
        yield {ancestor: Style.ATTENTION} | dict.fromkeys(names, Style.COLWISE) | rest
    counted = counted_heads(owner)
    if not counted:
        return
    if not fused:
        yield {ancestor: Style.DERIVED_ATTENTION} | dict.fromkeys(names, Style.COLWISE) | rest
        return
    yield {ancestor: Style.DERIVED_GROUPS} | dict.fromkeys(names, Style.COLWISE) | rest
    if counted.query == counted.key_value:
        yield {ancestor: Style.DERIVED_ATTENTION} | dict.fromkeys(names, Style.COLWISE_THIRDS) | rest
    yield {ancestor: Style.DERIVED_ATTENTION} | dict.fromkeys(names, Style.QKV_SLICE) | rest


def _sinks(layer: Any, owner: Any) -> Iterator[str]:
    """Names, within the layer, of an attention's own parameters that hold one value for each head."""
    heads = heads_of(owner) or counted_heads(owner)
    inside = next(name for name, module in layer.named_modules() if module is owner)
    for name, parameter in owner.named_parameters(recurse=False):
        if heads and parameter.shape == (heads.query,):
            yield f"{inside}.{name}"


def _ends(model: Any) -> dict[str, str]:
    """The styles of embedding and head, where they are a plain look-up and a linear layer."""
    import torch

    names = {module: wildcard(name) for name, module in model.named_modules()}
    entry, head = model.get_input_embeddings(), model.get_output_embeddings()
    plan = {}
    if isinstance(entry, torch.nn.Embedding):
        plan[names[entry]] = EMBEDDING
    if isinstance(head, torch.nn.Linear):
        plan[names[head]] = GATHERED_HEAD
        bias = f"{names[head]}.bias"
        for target, source in (model.all_tied_weights_keys or {}).items():
            if bias in (target, source):  # one bias, in the head and beside it, is split in both places
                plan[source if target == bias else target] = GATHERED_HEAD
    return plan
