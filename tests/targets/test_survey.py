"""A sample of the survey: programs of most groups are compiled, or refused with a message."""

import dataclasses

import pytest

from tests.helpers.targets import needs_cuda, needs_tpu
from tests.targets import survey
from tests.targets.survey import COMPILED, REFUSED
from tests.targets.survey_child import every

SAMPLE = (
    *("collectives/psum, grad", "collectives/psum in cond", "collectives/ragged_all_to_all"),
    *("control/cond in scan", "control/ref in loop", "control grad/scan", "control vmap/switch"),
    *("dtypes/argmax int4", "dtypes/conv float8_e3m4", "dtypes/conv int32", "dtypes/psum uint64"),
    *("dtypes/sorted int4", "dtypes/to f32 int2", "dtypes/scan int4", "dtypes/divided complex128"),
    *("dtypes/sharded matmul float8_e4m3", "dtypes/matmul int64", "dtypes/scatter-max complex64"),
    *("memory kinds/offloaded", "memory kinds/device to pinned_host", "pmap/psum, hosts"),
    *("numpy/numpy.sin", "numpy grad/numpy.cumsum", "lax vmap/lax.sort"),
    *("numpy.fft uneven/numpy.fft.rfft", "nn bfloat16/nn.softmax", "ops sharded/reduce_sum 0"),
    *("ops/select_and_scatter_add 0", "random rbg/normal"),
    *(
        "random threefry2x32 sharded/split",
        "sharded explicit/softmax",
        "sharded grid of hosts/max",
        "sharded uneven/rotation",
    ),
    *("sparse/product", "callbacks/pure_callback, sharded"),
)
REFUSED_ON = {
    "cuda": {"dtypes/conv int32"},
    "tpu": {"dtypes/to f32 int2", "dtypes/divided complex128", "dtypes/matmul int64",
            "callbacks/pure_callback, sharded"},
}  # fmt: skip


@pytest.mark.parametrize(
    "platform", [pytest.param("cuda", marks=needs_cuda), pytest.param("tpu", marks=needs_tpu)]
)
def test_a_sample(platform: str) -> None:
    names = [n for n in SAMPLE if n in every()]
    assert len(names) == len(SAMPLE), {*SAMPLE} - {*names}
    found = survey.outcomes(names, "shardwise", platform, workers=1)
    expected = {n: REFUSED if n in REFUSED_ON[platform] else COMPILED for n in names}
    assert {n: row for n, row in found.items() if row[0] != expected[n]} == {}


@dataclasses.dataclass
class FakeChild:
    """A child in which the program "b" ends the process."""

    library: str
    platform: str
    batches: list[list[str]]
    cause = "a check failed"
    runs = []  # noqa: RUF012

    def run(self) -> None:
        self.runs.append(self.batches)
        self.found, self.started, self.ended = {}, -1, False
        for number, batch in enumerate(self.batches):
            self.started = number
            if "b" in batch:
                return
            self.found.update({name: (COMPILED, "") for name in batch})
        self.ended = True


def test_a_program_that_ends_its_process_is_recorded(monkeypatch) -> None:
    monkeypatch.setattr(survey, "Child", FakeChild)
    monkeypatch.setattr(survey, "PER_BATCH", 3)
    found = survey.outcomes("xyzabcdef", "shardwise", "tpu", workers=1)
    assert found.pop("b") == ("crashed", "a check failed")
    assert found == dict.fromkeys("xyzacdef", (COMPILED, ""))
    rest = list("def")
    assert FakeChild.runs == [
        [list("xyz"), list("abc"), rest],
        [["a"], ["b"], ["c"], rest],
        [["c"], rest],
    ]
    results = [survey.Result(f"g/{n}", "tpu", *row) for n, row in found.items()]
    results.append(survey.Result("g/b", "tpu", "crashed", "a check failed"))
    assert survey.table(results, "tpu").splitlines()[1].split() == ["g", "8", "1"]
    assert [*survey.others(results, "tpu")] == ["crashed 1: a check failed", "    g/b"]
