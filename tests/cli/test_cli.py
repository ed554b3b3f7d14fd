"""The `shardwise` command."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import shardwise as sw
import shardwise._src.cli.demo as demo
import shardwise._src.cli.explain_error as explain_error
from shardwise._src.cli import COMMANDS, main, overview
from shardwise._src.running.program_out_of_memory import ProgramTooLarge
from shardwise._version import __version__
from tests.helpers.patience import seconds

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_version(capsys):
    for word in ("--version", "-V"):
        assert main([word]) == 0
        assert capsys.readouterr().out == f"shardwise {__version__}\n"


def test_without_arguments_it_lists_its_commands(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    for words in (["--help"], ["-h"], ["help"]):
        assert main(words) == 0
        assert capsys.readouterr().out == out
    for command in COMMANDS.values():
        assert f"\n  {command.name:<15} {command.about}\n" in out
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "run programs:",
        "inspect:",
        "get help:",
        "examples:",
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_the_examples_of_the_help_name_commands():
    for line in overview().partition("examples:")[2].splitlines():
        for command in re.findall(r"shardwise ([a-z-]+)", line.partition("   ")[0]):
            assert command in COMMANDS, line


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_what_it_takes(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: ") and name in out.splitlines()[0]
    assert max(map(len, out.splitlines())) <= 80
    if name != "demo":  # which passes even this on to the program
        assert main(["help", name]) == 0
        assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("dance", "unknown command 'dance'."),
        ("lanch", "unknown command 'lanch'. Did you mean 'launch'?"),
        ("--quick", "unknown option '--quick'."),
        ("run", "unknown command 'run'. Did you mean 'launch'?"),
        ("MPIrun", "unknown command 'MPIrun'. Did you mean 'launch'?"),
        ("htop", "unknown command 'htop'. Did you mean 'top'?"),
        ("info", "unknown command 'info'. Did you mean 'doctor'?"),
    ],
)
def test_an_unknown_command(word, message, capsys):
    for words in ([word], ["help", word], [word, "--help"]):
        assert main(words) == 2
        assert capsys.readouterr().err == f"shardwise: {message} `shardwise --help` lists all.\n"


def test_words_that_may_mean_a_command_mean_one():
    words = [word for command in COMMANDS.values() for word in command.others]
    assert len({*words, *COMMANDS}) == len(words) + len(COMMANDS)


def test_the_list_of_commands_needs_neither_numpy_nor_jaxlib():
    code = (
        "import sys; from shardwise._src.cli import main; main(['--help']); main(['dance'])\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'numpy', 'jaxlib', 'rich'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=seconds(60)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


def test_nobody_reads_on():
    line = f"{sys.executable} -m shardwise explain-error | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=seconds(60))
    assert done.stderr == "" and done.stdout in ("0\n", "141\n")


def test_the_demo_is_that_of_the_checkout():
    assert demo.examples() == EXAMPLES


def test_the_demo_of_a_wheel_lies_in_the_package(monkeypatch, tmp_path):
    (tmp_path / "shardwise" / "examples").mkdir(parents=True)
    (tmp_path / "shardwise" / "examples" / "gpt.py").touch()
    monkeypatch.setattr(demo, "PACKAGE", tmp_path / "shardwise")
    assert demo.examples() == tmp_path / "shardwise" / "examples"


def test_missing_examples_are_an_error_that_names_both_places(monkeypatch, tmp_path):
    monkeypatch.setattr(demo, "PACKAGE", tmp_path / "shardwise")
    with pytest.raises(SystemExit) as end:
        demo.examples()
    assert str(end.value) == (
        f"the examples are missing: there is no gpt.py in {tmp_path / 'shardwise' / 'examples'} "
        f"(in a wheel) or {tmp_path / 'examples'} (in a checkout). Reinstall shardwise."
    )


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Replaces the demo's program; returns a function that writes the replacement."""
    monkeypatch.setattr(demo, "PACKAGE", tmp_path / "shardwise")
    (tmp_path / "examples").mkdir()
    return (tmp_path / "examples" / "gpt.py").write_text


def test_flags_are_passed_on_and_the_program_knows_how_it_was_called(program, monkeypatch, capsys):
    program("import sys; print(sys.argv)")
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/shardwise", "demo"])
    before = sys.path[:]
    assert main(["demo", "--mesh", "1x1", "--help"]) == 0
    argv = ["/somewhere/bin/shardwise demo", "--mesh", "1x1", "--help"]
    assert capsys.readouterr().out == f"{argv}\n"
    assert sys.argv == ["/somewhere/bin/shardwise", "demo"]
    assert sys.path == before


def test_a_command_on_the_path_is_called_by_its_name(monkeypatch, tmp_path):
    command = tmp_path / "shardwise"
    command.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(command)])
    assert demo._command() == "shardwise"


@pytest.mark.parametrize(
    ("source", "status"),
    [("", 0), ("import sys; sys.exit(130)", 130), ("import sys; sys.exit()", 0)],
)
def test_exit_statuses(program, source, status):
    program(source)
    assert main(["demo"]) == status


def test_an_exit_with_a_message(program, capsys):
    program("raise SystemExit('--mesh 3: expected two sizes')")
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "--mesh 3: expected two sizes\n"


# ------------------------------------------------------------------------------ explain-error

PAGES = Path(__file__).resolve().parents[2] / "docs" / "errors"


def test_a_page_is_printed(capsys):
    for name in ("BroadcastError", "broadcasterror", "shardwise.errors.BroadcastError"):
        assert main(["explain-error", name]) == 0
        assert capsys.readouterr().out == (PAGES / "BroadcastError.md").read_text()


def test_classes_that_the_page_of_their_base_describes(capsys):
    page = (PAGES / "JaxRuntimeError.md").read_text()
    assert f"`{ProgramTooLarge.__name__}`" in page
    assert issubclass(ProgramTooLarge, sw.errors.JaxRuntimeError)
    for name in ("ProgramTooLarge", f"{ProgramTooLarge.__module__}.ProgramTooLarge"):
        assert main(["explain-error", name]) == 0
        assert capsys.readouterr().out == page
    assert main(["explain-error", "ProgramToLarge"]) == 1
    assert capsys.readouterr().err == (
        "there is no page for 'ProgramToLarge'. Did you mean 'ProgramTooLarge'? `shardwise "
        "explain-error` lists all.\n"
    )


def test_without_a_name_all_are_listed(capsys):
    assert main(["explain-error"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {p.stem for p in PAGES.glob("[!R]*.md")}
    assert lines[0] == "BroadcastError                  shapes of operands do not fit together"


def test_an_unknown_name_is_answered_with_a_near_one(capsys):
    assert main(["explain-error", "BrodcastError"]) == 1
    assert capsys.readouterr().err == (
        "there is no page for 'BrodcastError'. Did you mean 'BroadcastError'? `shardwise "
        "explain-error` lists all.\n"
    )
    assert main(["explain-error", "Nothing"]) == 1
    assert capsys.readouterr().err == (
        "there is no page for 'Nothing'. `shardwise explain-error` lists all.\n"
    )


def test_the_pages_of_a_wheel_lie_in_the_package(monkeypatch, tmp_path, capsys):
    shipped = tmp_path / "shardwise" / "docs" / "errors"
    shipped.mkdir(parents=True)
    (shipped / "README.md").write_text("| [OwnError](OwnError.md) | it is so |\n")
    (shipped / "OwnError.md").write_text("# OwnError\n")
    monkeypatch.setattr(explain_error, "PACKAGE", tmp_path / "shardwise")
    assert main(["explain-error", "OwnError"]) == 0
    assert capsys.readouterr().out == "# OwnError\n"


def test_missing_pages_are_an_error_that_names_both_places(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(explain_error, "PACKAGE", tmp_path / "shardwise")
    assert main(["explain-error"]) == 1
    inner, outer = tmp_path / "shardwise" / "docs" / "errors", tmp_path / "docs" / "errors"
    assert capsys.readouterr().err == (
        f"the pages are missing: there is no README.md in {inner} (in a wheel) or "
        f"{outer} (in a checkout). Reinstall shardwise.\n"
    )


def test_wheels_and_source_archives_carry_the_pages_and_the_examples():
    project = tomllib.loads((PAGES.parents[1] / "pyproject.toml").read_text())
    targets = project["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["force-include"] == {
        "examples": "shardwise/examples",
        "docs/errors": "shardwise/docs/errors",
    }
    assert {"/docs/errors", "/examples", "/shardwise"} <= {*targets["sdist"]["include"]}


def test_the_command_that_an_error_prints_shows_its_page(capsys):
    with pytest.raises(sw.errors.BroadcastError) as caught:
        sw.numpy.ones((3, 4)) + sw.numpy.ones((4, 3))
    (note,) = caught.value.__notes__
    assert note == "Examples and fixes: `shardwise explain-error BroadcastError`"
    assert main(note.split("`")[1].split()[1:]) == 0
    assert capsys.readouterr().out.startswith("# BroadcastError\n")


def test_help_of_the_demo_in_a_process_of_its_own():
    code = "import sys; from shardwise._src.cli import main; sys.exit(main())"
    command = [sys.executable, "-W", "error", "-c", code, "demo", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(60))
    assert done.returncode == 0, done.stderr
    assert "--mesh" in done.stdout
