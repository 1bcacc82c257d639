"""The one shim of accelhub: lets `from_pretrained(device_map=accelhub.auto())` shard.

transformers refuses `device_map` together with tensor parallelism, so a device map cannot say "shard". Once `auto()`
was called in a world of several chips, `PreTrainedModel.from_pretrained` recognises its answer and passes the sharding
arguments in its place. Everything else goes through untouched.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from accelhub.errors import UsageError
from accelhub.parallel.sharding import shard_arguments
from accelhub.process import world_size

OLDEST: Final = (5, 20)
NEWER: Final = (5, 25)
"""The first release that this shim is not known to work with: `make ranges` runs its tests on the oldest and newest."""


class ShardedDeviceMap(str):
    """This process's device, marked: the model is to be sharded over the world, of which it is one."""

    __slots__ = ()


def sharded_device_map(device: str) -> ShardedDeviceMap:
    """The marked device map, with the shim in place.

    Raises:
        UsageError: transformers is a release that the shim does not know.
    """
    _install()
    return ShardedDeviceMap(device)


@functools.cache
def _install() -> None:
    import transformers

    release = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    if not OLDEST <= release < NEWER:
        raise UsageError(
            f"accelhub.auto() shards with transformers {OLDEST[0]}.{OLDEST[1]} to {NEWER[0]}.{NEWER[1] - 1}, and"
            f" {transformers.__version__} is installed; use from_pretrained(path, **accelhub.shard(path))"
        )
    original = transformers.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(original)
    def from_pretrained(cls: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(kwargs.get("device_map"), ShardedDeviceMap):
            del kwargs["device_map"]
            if kwargs.get("distributed_config") is not None:
                raise UsageError("device_map=accelhub.auto() shards by itself: leave out distributed_config, or auto()")
            config = kwargs.get("config")
            if not isinstance(config, transformers.PreTrainedConfig):
                config = cls.config_class.from_pretrained(path if config is None else config)
            kwargs |= shard_arguments(cls, config, world_size())
        return original(cls, path, *args, **kwargs)

    transformers.PreTrainedModel.from_pretrained = classmethod(from_pretrained)
