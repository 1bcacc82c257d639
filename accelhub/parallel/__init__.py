"""Tensor parallelism: `shard()`, the repairs to a model's plan (`repairs`), and `auto()`'s way in (`bridge`)."""

from accelhub.parallel.sharding import shard

__all__ = ["shard"]
