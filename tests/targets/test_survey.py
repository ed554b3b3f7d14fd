"""A sample of the survey: programs of most groups are compiled, or refused with a message."""

import dataclasses
import subprocess
import sys

import pytest

from tests.helpers.targets import needs_cuda, needs_tpu
from tests.targets import survey
from tests.targets.survey import COMPILED, REFUSED
from tests.targets.survey_child import every

SAMPLE = (
    *("collectives/psum, grad", "collectives/ragged_all_to_all", "control/ref in loop"),
    *("dtypes/conv int32", "dtypes/sorted int4", "dtypes/to f32 int2", "dtypes/matmul int64"),
    *("memory kinds/offloaded", "numpy grad/numpy.cumsum", "random rbg/normal"),
    *("sharded grid of hosts/max", "callbacks/pure_callback, sharded"),
)
OTHERS = (
    *("collectives/psum in cond", "control/cond in scan", "control grad/scan"),
    *("control vmap/switch", "dtypes/argmax int4", "dtypes/conv float8_e3m4"),
    *("dtypes/psum uint64", "dtypes/scan int4", "dtypes/divided complex128"),
    *("dtypes/sharded matmul float8_e4m3", "dtypes/scatter-max complex64"),
    *("memory kinds/device to pinned_host", "pmap/psum, hosts", "numpy/numpy.sin"),
    *("lax vmap/lax.sort", "numpy.fft uneven/numpy.fft.rfft", "nn bfloat16/nn.softmax"),
    *("ops sharded/reduce_sum 0", "ops/select_and_scatter_add 0", "sparse/product"),
    *("random threefry2x32 sharded/split", "sharded explicit/softmax", "sharded uneven/rotation"),
)
REFUSED_ON = {
    "cuda": {"dtypes/conv int32"},
    "tpu": {"dtypes/to f32 int2", "dtypes/divided complex128", "dtypes/matmul int64",
            "callbacks/pure_callback, sharded"},
}  # fmt: skip


PLATFORMS = [pytest.param("cuda", marks=needs_cuda), pytest.param("tpu", marks=needs_tpu)]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_sample(platform: str) -> None:
    found = survey.outcomes(SAMPLE, "shardwise", platform, workers=1)
    assert {n: row for n, row in found.items() if row[0] != expected(n, platform)} == {}


@pytest.mark.sweep
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_larger_sample(platform: str) -> None:
    assert {*SAMPLE, *OTHERS} <= {*every()}
    found = survey.outcomes(OTHERS, "shardwise", platform, workers=1)
    assert {n: row for n, row in found.items() if row[0] != expected(n, platform)} == {}


def expected(name: str, platform: str) -> str:
    return REFUSED if name in REFUSED_ON[platform] else COMPILED


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


class Over:
    """A deadline that is over."""

    def __init__(self, n: float):
        assert n == survey.SECONDS

    def is_over(self) -> bool:
        return True


def test_a_child_without_output_is_ended(monkeypatch) -> None:
    monkeypatch.setattr(survey, "Deadline", Over)
    child = survey.Child("shardwise", "tpu", [["a"]])
    hanging = [sys.executable, "-c", "input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(hanging, stdin=pipe, stdout=pipe, text=True) as process:
        child._read(process)
    assert child.late
    assert not child.ended
    assert child.cause == "no output for 600 seconds of an idle machine"
