"""Tensor parallelism: `shard()` and `plan()`, the rules that repair a plan, and `auto()`'s way in (`bridge`)."""

from accelhub.parallel.sharding import plan, shard

__all__ = ["plan", "shard"]
