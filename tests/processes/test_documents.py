"""The programs of the documents print the same in 1, 2 and 4 processes, from the same source.

Each runs unchanged, with eight devices in all. The output of each block is compared with its
output in one process: in process 0 and also in the others, unless `ONLY_IN_FIRST` gives a reason.
Devices of other processes have other names in diagrams, and boxes have room for them.
"""

import re
import textwrap

import pytest

from tests.docs.test_docs import DOCUMENTS, MARK, ROOT, execute, program_of
from tests.helpers.everyday import Run, everyday
from tests.helpers.processes import run_processes

DEVICES = 8
# Documents with programs over few devices, all in one process; that save to a folder per process
# (tests/saving/test_processes.py has one for all); that print what XLA combines, or which process
# holds what; that read full arrays; that compare with other libraries, or are for beginners:
# docs/tutorials itself has a page on processes.
LEFT_OUT = {"values.md", "checkpoints.md", "seeing.md", "export.md", "ecosystem.md", "notation.md"}
FOLDERS = {"errors", "tutorials", "migration"}
NAMES = sorted(
    str(path.relative_to(ROOT)) for path in DOCUMENTS
    if "```python\n" in path.read_text() and path.parent.name not in FOLDERS
    and path.name not in LEFT_OUT
)  # fmt: skip
LONG = "docs/manual_parallelism.md"  # compiles for half a minute
SHORT = [(name, count) for name in NAMES if name != LONG for count in (2, 4)]
CASES = everyday(SHORT, 1) + [(LONG, count) for count in (2, 4) if Run.sweep]

# Blocks, identified by one of their lines, that raise a ValueError in several processes.
REFUSED = {
    ("docs/maps.md", "y = scaled(np.arange(8, dtype=np.float32), 28.0)"):
        "pmap of <lambda>: the mapped axis has size 8, and this process has {own} devices. With "
        "several processes, each passes one index for each of its own devices; `devices=` selects "
        "the devices, of all processes or of this one.\n",
}  # fmt: skip
# Blocks that print only in the process of the first device, and the reason.
ONLY_IN_FIRST = {
    ("docs/effects.md", 'sw.debug.print("{}", x)'): "a function of the host is called once",
    ("docs/shardings.md", "print(np.asarray(x.addressable_shards[0].data)"): "the first shard here",
}


def found(table, name, block):
    """The table entry for a block of a document."""
    return next((said for (of, line), said in table.items() if of == name and line in block), None)


def blocks_of(name):
    text = (ROOT / name).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def source_of(name):
    """The program of a document, changed to continue after blocks that raise."""
    text = (ROOT / name).read_text()
    for block in blocks_of(name):
        if found(REFUSED, name, block):
            body = textwrap.indent(block, "    ")
            text = text.replace(
                block, f"try:\n{body}except ValueError as error:\n    print(error)\n"
            )
    return program_of(text)[0]


def unnamed(printed, count):
    """Normalizes output. In diagrams, devices are named by position and boxes have no width. Of a
    report, only communication and its reasons remain: XLA combines nothing over Gloo, which changes
    all numbers. Of a plan, only the moves remain: what is sent depends on the processes."""

    if "estimated for machine" in printed:
        return sorted(line for line in printed.splitlines() if re.match("    [a-z'_]", line))
    if "that devices do not hold yet" in printed:
        return re.findall("^moved: .*", printed, re.MULTILINE)
    if "┌" not in printed:
        return printed

    def position(id):
        process, place = divmod(int(id[0]), 2048)
        return str(process * DEVICES // count + place)

    printed = re.sub(r"^p\d.*: devices of .*process.*\n", "", printed, flags=re.MULTILINE)
    return re.sub(r"CPU|p\d+:|[ ─]", "", re.sub(r"\d{4,}", position, printed))


def test_pictures_are_compared_without_names():
    one = "┌─────────────┬─────┐\n│ CPU 0,2,4,6 │ CPU 1 │\n"
    two = "┌────────┬─────┐\n│ CPU 0,2, p1:2048,2050 │ CPU 1 │\np1: devices of another process; …\n"
    assert unnamed(one, 1) == unnamed(two, 2) == "┌┬┐\n│0,2,4,6│1│\n"
    assert unnamed(two, 4) != unnamed(one, 1)


def test_reports_are_compared_by_what_communicates():
    report = "f: estimated for machine 'cpu'\n  all-reduce  {}\n    dot(…) → …\n    adds over …\n"
    assert unnamed(report.format("1 KiB"), 1) == unnamed(report.format("2 KiB"), 2)
    assert unnamed(report, 1) == ["    adds over …", "    dot(…) → …"]


@pytest.fixture(scope="module")
def in_one(tmp_path_factory):
    """The program of a document, and the output of each of its blocks in one process."""
    kept = {}

    def program(name):
        if name not in kept:
            path = tmp_path_factory.mktemp("document") / "program.py"
            path.write_text(source_of(name))
            kept[name] = path, execute(path.read_text(), str(path)).split(MARK)
        return kept[name]

    return program


@pytest.mark.parametrize(("name", "count"), CASES)
def test_a_document_gives_the_same_in_several_processes(name, count, in_one):
    path, printed_in_one = in_one(name)
    results = run_processes(
        path,
        count,
        devices=DEVICES // count,
        timeout=100,
        env={"PYTHONWARNINGS": "error", "COLUMNS": "80"},
    )
    blocks = [*blocks_of(name), ""]
    for result in results:
        printed = result.out.split(MARK)
        for block, got, one in zip(blocks, printed, printed_in_one, strict=True):
            if refused := found(REFUSED, name, block):
                assert got == refused.format(own=DEVICES // count)
            elif result.rank and found(ONLY_IN_FIRST, name, block):
                assert got != one
            else:
                assert unnamed(got, count) == unnamed(one, 1), (result.rank, block)


def test_exceptions_are_those_of_blocks():
    for table in (REFUSED, ONLY_IN_FIRST):
        for name, line in table:
            assert len([block for block in blocks_of(name) if line in block]) == 1, line
