"""The `shardwise` command."""

import subprocess
import sys
from pathlib import Path

import pytest

import shardwise._src.cli.demo as demo
from shardwise._src.cli import main
from shardwise._version import __version__

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"shardwise {__version__}\n"


def test_without_arguments_it_lists_its_commands(capsys):
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 0
    assert "demo" in capsys.readouterr().out


def test_an_unknown_command(capsys):
    with pytest.raises(SystemExit) as end:
        main(["dance"])
    assert end.value.code == 2
    assert "invalid choice: 'dance'" in capsys.readouterr().err


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
        f"(a wheel has it there) or {tmp_path / 'examples'} (a checkout). Install shardwise again."
    )


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Puts another program in the place of the demo's; returns a function that writes it."""
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


def test_help_of_the_demo_in_a_process_of_its_own():
    code = "import sys; from shardwise._src.cli import main; sys.exit(main())"
    command = [sys.executable, "-W", "error", "-c", code, "demo", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--mesh" in done.stdout
