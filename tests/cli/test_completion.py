"""`shardwise completion`: the scripts, run by their shells."""

import shutil
import subprocess

import pytest

from shardwise._src.cli import COMMANDS, main
from tests.helpers.patience import seconds


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Returns the path of the script for a shell."""
    folder = tmp_path_factory.mktemp("completion")

    def of(shell, capsys):
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        path = folder / shell
        if not path.exists():
            assert main(["completion", shell]) == 0
            path.write_text(capsys.readouterr().out)
        return path

    return of


def run(line, cwd=None):
    done = subprocess.run(line, capture_output=True, text=True, timeout=seconds(60), cwd=cwd)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


CASES = [
    ("", [*COMMANDS]),
    ("la", ["launch"]),
    ("launch --res", ["--restarts"]),
    ("launch --log-dir ", ["logs", "my script.py", "train.py"]),
    ("launch --restarts ", []),
    ("launch -n 4 t", ["train.py"]),
    ("launch -n 4 --grace 3 train.py --res", []),  # an option of the program: unknown
    ("launch -n 4 train.py l", ["logs"]),
    ("launch train.py --restarts t", ["train.py"]),
    ("completion ", ["bash", "zsh", "fish"]),
    ("explain-error Broad", ["BroadcastError"]),
    ("explain-error --h", ["--help"]),
    ("demo --save-", ["--save-every"]),
    ("help doc", ["doctor"]),
    ("dance ", []),
]


@pytest.mark.parametrize(("typed", "offered"), CASES)
def test_bash(script, typed, offered, tmp_path, capsys):
    for name in ("train.py", "my script.py"):
        (tmp_path / name).touch()
    (tmp_path / "logs").mkdir()
    words = ["shardwise", *typed.split(" ")]
    asked = " ".join([f"'{word}'" for word in words])
    line = (
        f"source '{script('bash', capsys)}'; COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; "
        '_shardwise; (( ${#COMPREPLY[@]} == 0 )) || printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert sorted(run(["bash", "--norc", "-c", line], tmp_path)) == sorted(offered)
    known = f"source '{script('bash', capsys)}'; complete -p shardwise"
    assert run(["bash", "--norc", "-c", known]) == ["complete -o filenames -F _shardwise shardwise"]


@pytest.mark.parametrize(
    ("typed", "offered"), [*CASES[:5], *CASES[10:13], ("help doc", ["doctor"])]
)
def test_fish(script, typed, offered, tmp_path, capsys):
    for name in ("train.py", "my script.py"):
        (tmp_path / name).touch()
    (tmp_path / "logs").mkdir()
    line = f"source {script('fish', capsys)}; complete -C 'shardwise {typed}'"
    found = [text.partition("\t")[0].rstrip("/") for text in run(["fish", "-c", line], tmp_path)]
    assert sorted(found) == sorted(offered)


def test_zsh(script, capsys):
    """The script loads, and calls zsh's own functions with valid arguments."""
    path = script("zsh", capsys)
    stubs = "compdef() { print -r -- compdef $@ }; _describe() { print -rl -- $commands }; "
    stubs += "_arguments() { print -rl -- $@ }; "
    assert run(["zsh", "-f", "-c", f"{stubs} source {path}"]) == ["compdef _shardwise shardwise"]
    call = f"{stubs} source {path} >/dev/null; words=(shardwise %s); CURRENT=%d; _shardwise"
    named = run(["zsh", "-f", "-c", call % ("''", 2)])
    assert named == run(["zsh", "-f", "-c", call % ("help ''", 3)])
    assert named == [f"{c.name}:{c.about}" for c in COMMANDS.values()]
    specs = run(["zsh", "-f", "-c", call % ("launch ''", 3)])
    about = "maximum number of restarts of all processes after one fails (0)"
    assert f"--restarts[{about}]:value: " in specs
    assert specs[-1] == "*::file:_files"
    (names,) = [s for s in run(["zsh", "-f", "-c", call % ("completion ''", 3)]) if s[0] != "-"]
    assert names == "1:name:(bash zsh fish)"


def test_a_shell_that_is_not_known(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "invalid choice: 'tcsh'" in capsys.readouterr().err
