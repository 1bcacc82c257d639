"""Every collective over four emulated chips, against values worked out by hand."""

import json
import math

import pytest

from launching import launch

CHIPS = 4
MINE = [[10 * rank, 10 * rank + 1] for rank in range(CHIPS)]
LONG = [[10 * rank + k for k in range(CHIPS)] for rank in range(CHIPS)]
ALL = [value for values in MINE for value in values]
SUM = [sum(values) for values in zip(*MINE, strict=True)]


def compiled():
    mixed = [[2 * total + own for total, own in zip(SUM, MINE[rank], strict=True)] for rank in range(CHIPS)]
    return [math.sin(value) for values in mixed for value in values]


EXPECTED = {
    "all_gather": lambda rank: ALL,
    "all_reduce_bfloat16": lambda rank: ALL,
    "all_reduce_max": lambda rank: MINE[-1],
    "all_reduce_sum": lambda rank: SUM,
    "all_to_all": lambda rank: [LONG[source][rank] for source in range(CHIPS)],
    "all_to_all_single": lambda rank: [LONG[source][rank] for source in range(CHIPS)],
    "broadcast": lambda rank: MINE[1],
    "compiled": lambda rank: compiled(),
    "distributed_tensor": lambda rank: list(range(20)),
    "gather": lambda rank: ALL if rank == CHIPS - 1 else None,
    "objects": lambda rank: [{"rank": source} for source in range(CHIPS)],
    "reduce": lambda rank: SUM if rank == 0 else None,
    "reduce_scatter": lambda rank: [sum(row[rank] for row in LONG)],
    "reduce_scatter_tensor": lambda rank: [sum(row[rank] for row in LONG)],
    "ring": lambda rank: MINE[rank - 1],
    "scatter": lambda rank: [value + 100 * rank for value in MINE[0]],
    "subgroup": lambda rank: [a + b for a, b in zip(MINE[rank // 2 * 2], MINE[rank // 2 * 2 + 1], strict=True)],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collectives")
    done = launch("collectives.py", folder, chips=CHIPS)
    assert done.returncode == 0, done.stderr
    assert "compiled graphs break at collectives" in done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(CHIPS)]


@pytest.mark.parametrize("name", EXPECTED)
def test_collective(results, name):
    for rank in range(CHIPS):
        expected = EXPECTED[name](rank)
        if name == "compiled":
            expected = pytest.approx(expected, abs=1e-5)
        assert results[rank][name] == expected, f"rank {rank}"


def test_the_group_goes_by_torch_tpus_own_name(results):
    assert {result["backend"] for result in results} == {"tpu_dist"}


def test_a_worker_sees_the_emulated_host_that_was_launched(results):
    assert {result["devices"] for result in results} == {CHIPS}
