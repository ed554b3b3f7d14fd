"""Trains a transformer on Python's reference text over a mesh of eight virtual CPU devices.

    python examples/gpt.py                  data parallel x4, tensor parallel x2
    python examples/gpt.py --mesh 8x1       data parallel only
    python examples/gpt.py --mesh 1x1       one device, the same numbers
    shardwise launch -n 2 examples/gpt.py   two processes of four devices each, the same numbers
    shardwise compile examples/gpt.py:step --for h100:8 --for tpu-v5p:2x2x2      compiled, not run

It shows the mesh and a sharded weight, compares the first step with that on one device, lists the
collectives of the compiled step, trains, and generates some text. Ctrl-C and SIGTERM save; another
run continues, on the same or another mesh. Among several processes, the first one prints and saves,
or, with `--save FOLDER`, each saves its shards of a checkpoint. The model is in `gpt_model.py`, the
text in `gpt_text.py`, saving in `gpt_state.py`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpt_model import (
    Config,
    count_parameters,
    init_state,
    loss,
    next_bytes,
    state_shardings,
    train_step,
)
from gpt_state import Interrupt, Saved, is_checkpoint, load, save
from gpt_text import (
    Corpus,
    bigram_entropy,
    read_corpus,
    to_text,
    training_windows,
    unigram_entropy,
    validation_windows,
)
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import shardwise as sw
from shardwise import random
from shardwise.distributed import report_progress
from shardwise.explain import collectives, summarize, table, visualize_mesh, visualize_sharding
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

TOLERANCE = 1e-4  # of sharded against one-device loss and gradients, relative to the largest
SAMPLE_BYTES = 320
console = Console()


@dataclass(frozen=True)
class Run:
    """The configuration of one invocation."""

    config: Config
    corpus: Corpus
    mesh: Mesh
    path: Path
    save_every: int

    def put_batch(self, windows: np.ndarray) -> Any:
        return sw.device_put(windows, NamedSharding(self.mesh, P("data", None)))

    def put_state(self, state: dict) -> dict:
        return sw.device_put(state, state_shardings(self.config, self.mesh))

    def on_host(self, tree: Any) -> Any:
        """NumPy values of arrays on the mesh; a process may hold only some of their shards."""
        return sw.tree.map(np.asarray, sw.device_put(tree, NamedSharding(self.mesh, P())))

    def batch(self, step: int) -> np.ndarray:
        config = self.config
        return training_windows(self.corpus, step, config.batch, config.context, config.seed)


# ---- flags ---------------------------------------------------------------------------------------


def flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--mesh", default="4x2", help="devices along data x model, as 4x2 or 1x1")
    for field in fields(Config):
        kind = float if field.name == "rate" else int
        parser.add_argument(f"--{field.name}", type=kind, help=f"default {field.default}")
    parser.add_argument(
        "--save",
        type=Path,
        default=default_path(),
        metavar="FILE",
        help="a .npz file, or a folder for a checkpoint; default %(default)s",
    )
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    parser.add_argument("--fresh", action="store_true", help="start over, ignore the saved run")
    return parser


def default_path() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shardwise" / "gpt.npz"


def parse_mesh(text: str) -> tuple[int, int]:
    data, _, model = text.partition("x")
    if not (data.isdigit() and model.isdigit() and int(data) * int(model)):
        raise SystemExit(f"--mesh {text}: expected two sizes such as 4x2, 8x1 or 1x1")
    return int(data), int(model)


def choose_config(flags: argparse.Namespace, saved: Saved | None) -> Config:
    """The flags over the saved run's settings, which they must not contradict."""
    given = {f.name: getattr(flags, f.name) for f in fields(Config)}
    given = {name: value for name, value in given.items() if value is not None}
    if saved is None:
        return Config(**given)
    was = asdict(saved.config)
    changed = [f"--{name} {value} (was {was[name]})" for name, value in given.items()
               if value != was[name]]  # fmt: skip
    if changed:
        raise SystemExit(
            f"{flags.save} holds an unfinished run with other settings: {', '.join(changed)}.\n"
            "Leave these flags out to continue it, or add --fresh to start over."
        )
    return saved.config


def check_config(config: Config, data: int, model: int) -> None:
    """Every sharded dimension must divide evenly."""
    problems = []
    if config.width % config.heads:
        problems.append(f"--width {config.width} is not a multiple of --heads {config.heads}")
    if config.heads % model:
        problems.append(f"--heads {config.heads} is not a multiple of the {model} model devices")
    if config.batch % data:
        problems.append(f"--batch {config.batch} is not a multiple of the {data} data devices")
    if problems:
        raise SystemExit("; ".join(problems))


def make_mesh(data: int, model: int) -> Mesh:
    """A mesh over the first devices of all processes; on CPU, as many devices as it needs."""
    processes = int(os.environ.get("SHARDWISE_NUM_PROCESSES", "1"))
    if data * model < processes:
        raise SystemExit(f"--mesh {data}x{model} has fewer devices than there are processes")
    sw.config.update("num_cpu_devices", math.ceil(data * model / processes))
    devices = sw.devices()
    if len(devices) < data * model:
        devices = sw.devices("cpu")
    grid = np.array(devices[: data * model]).reshape(data, model)
    return Mesh(grid, ("data", "model"))


# ---- before training -----------------------------------------------------------------------------


def show_layout(run: Run, state: dict) -> None:
    weight = state["parameters"]["blocks"][0]["up"]
    visualize_mesh(run.mesh, console=console)
    console.print(f"\nblocks/0/up, float32{list(weight.shape)}, {weight.sharding.spec}")
    visualize_sharding(weight.shape, weight.sharding, console=console)


def check_against_one_device(run: Run, state: dict, step: int) -> None:
    """Compares loss and gradients of one step on the mesh with those on a single device."""
    if run.mesh.size == 1:
        console.print("\none device: nothing to compare the step with")
        return
    own = run.mesh.local_devices[0]
    single = replace(run, mesh=Mesh(np.array([[own]]), ("data", "model")))
    windows = run.batch(step)
    ours = loss_and_gradients(run, state["parameters"], windows)
    host = run.on_host(state)
    theirs = loss_and_gradients(single, single.put_state(host)["parameters"], windows)
    loss_gap, gradient_gap = max_gap(ours[0], theirs[0]), max_gap(ours[1], theirs[1])
    largest = max(float(np.abs(leaf).max()) for leaf in sw.tree.leaves(theirs[1]))
    console.print(
        f"\n{run.mesh.size} devices against one, largest absolute difference: "
        f"loss {loss_gap:.1e}, gradients {gradient_gap:.1e} (largest gradient {largest:.1e})"
    )
    if not (loss_gap <= TOLERANCE * float(theirs[0]) and gradient_gap <= TOLERANCE * largest):
        raise RuntimeError(
            f"the sharded step disagrees with one device: loss by {loss_gap:.3e}, gradients by "
            f"{gradient_gap:.3e}; allowed is {TOLERANCE} of the loss and of the largest gradient"
        )


def loss_and_gradients(run: Run, parameters: dict, windows: np.ndarray) -> Any:
    """NumPy values of the loss and its gradients on the run's mesh."""
    function = sw.jit(sw.value_and_grad(partial(loss, config=run.config, mesh=run.mesh)))
    return run.on_host(function(parameters, run.put_batch(windows)))


def max_gap(ours: Any, theirs: Any) -> float:
    gaps = sw.tree.map(lambda a, b: float(np.abs(a - b).max()), ours, theirs)
    return max(sw.tree.leaves(gaps))


def compile_step(run: Run, state: dict) -> Callable:
    """Compiles the training step ahead of its first call and lists its collectives."""
    started = time.perf_counter()
    jitted = jitted_step(run.config, run.mesh)
    compiled = jitted.lower(state, run.put_batch(run.batch(0))).compile()
    seconds = time.perf_counter() - started
    console.print(f"\ncompiled the training step in {seconds:.1f} s; its collectives:")
    console.print(table(summarize(collectives(compiled.as_text()), run.mesh)))
    return compiled


def jitted_step(config: Config, mesh: Mesh) -> Any:
    function = partial(train_step, config=config, mesh=mesh)
    shardings = state_shardings(config, mesh), NamedSharding(mesh, P())
    return sw.jit(function, donate_argnums=0, out_shardings=shardings)


def step(devices: list) -> tuple[Any, tuple]:
    """The training step and the types of its arguments, for `shardwise compile` on a machine."""
    config = Config()
    grid = np.array(devices).reshape(-1, 2 if len(devices) % 2 == 0 else 1)
    mesh = Mesh(grid, ("data", "model"))
    shapes = sw.eval_shape(partial(init_state, config))
    state = sw.tree.map(
        lambda x, sharding: x.update(sharding=sharding), shapes, state_shardings(config, mesh)
    )
    rows = NamedSharding(mesh, P("data", None))
    windows = sw.ShapeDtypeStruct((config.batch, config.context + 1), np.int32, sharding=rows)
    return jitted_step(config, mesh), (state, windows)


# ---- training ------------------------------------------------------------------------------------


def train(run: Run, state: dict, first_validation: float) -> dict | None:
    """Trains to the last step; saves and returns None if Ctrl-C requests a stop."""
    config = run.config
    compiled = compile_step(run, state)
    begin, stop = int(state["step"]), False
    with Interrupt() as interrupt, progress_bar() as bar:
        task = bar.add_task("", total=config.steps, completed=begin, facts="")
        started = time.perf_counter()
        for step in range(begin, config.steps):
            state, value = compiled(state, run.put_batch(run.batch(step)))
            now = float(value)  # waits, so that at most one step is running on Ctrl-C
            tokens = config.batch * config.context
            report_progress(step + 1, tokens=tokens, loss=now)  # for `shardwise top`
            speed = tokens * (step + 1 - begin) / (time.perf_counter() - started)
            facts = f"loss {now:.3f}  {speed:,.0f} tokens/s"
            bar.update(task, completed=step + 1, facts=facts)
            if not math.isfinite(now):
                raise RuntimeError(f"the loss became {now} at step {step}; try a lower --rate")
            if not console.is_terminal and (step + 1) % 50 == 0:
                console.print(f"step {step + 1:4d}  {facts}")
            stop = in_any_process(run, interrupt.asked)
            if stop or (step + 1) % run.save_every == 0 or step + 1 == config.steps:
                save_run(run, state, first_validation)
            if stop:
                break
    if stop:
        say_how_to_resume(run, int(state["step"]))
        return None
    return state


def in_any_process(run: Run, asked: bool) -> bool:
    """Whether any process received a stop signal; signals arrive after different steps in each."""
    if sw.process_count() == 1:
        return asked
    places = NamedSharding(run.mesh, P(("data", "model")))
    flags = sw.make_array_from_callback((run.mesh.size,), places, lambda _: np.array([asked]))
    return bool(run.on_host(flags).any())


def progress_bar() -> Progress:
    return Progress(
        TextColumn("step {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
        console=console,
    )


def save_run(run: Run, state: dict, first_validation: float, finished: bool = False) -> None:
    by_all = is_checkpoint(run.path)
    found = state if by_all else run.on_host(state)
    if by_all or sw.process_index() == 0:
        save(run.path, Saved(found, run.config, first_validation, finished))


def say_how_to_resume(run: Run, step: int) -> None:
    default = run.path == default_path()
    program = f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else sys.argv[0]
    command = program if default else f"{program} --save {run.path}"
    console.print(
        f"\nstopped after step {step} of {run.config.steps}; saved to {run.path}\n"
        f"continue with: {command}    (any --mesh)\nstart over with: {command} --fresh"
    )


# ---- after training ------------------------------------------------------------------------------


def validation_loss(run: Run, parameters: dict) -> float:
    """Mean nats per byte over the held-out text."""
    function = sw.jit(partial(loss, config=run.config, mesh=run.mesh))
    batches = validation_windows(run.corpus, run.config.batch, run.config.context)
    return float(np.mean([float(function(parameters, run.put_batch(b))) for b in batches]))


def sample_text(run: Run, parameters: dict) -> tuple[str, str]:
    """Continues the start of the held-out text: a prompt of one context, and the samples."""
    config = run.config
    prompt = run.corpus.held_out[: config.context].astype(np.int32)
    rows = run.mesh.shape["data"]  # one row per data device; only the first is shown
    window = run.put_batch(np.tile(prompt, (rows, 1)))
    key = sw.device_put(random.PRNGKey(config.seed + 1), NamedSharding(run.mesh, P()))
    whole = NamedSharding(run.mesh, P())
    shardings = NamedSharding(run.mesh, P("data", None)), whole, whole
    step = sw.jit(
        partial(next_bytes, temperature=0.7, config=config, mesh=run.mesh), out_shardings=shardings
    )
    written = []
    for _ in range(SAMPLE_BYTES):
        window, chosen, key = step(parameters, window, key)
        written.append(np.asarray(chosen)[0])
    return to_text(prompt), to_text(np.array(written))


def report(run: Run, state: dict, before: float) -> None:
    after = validation_loss(run, state["parameters"])
    everything = np.concatenate([run.corpus.train, run.corpus.held_out])
    console.print(
        f"\nnats per byte: validation before {before:.3f}, after [bold]{after:.3f}[/bold]; "
        f"entropy of the text by single bytes {unigram_entropy(everything):.3f}, "
        f"by pairs {bigram_entropy(everything):.3f}"
    )
    prompt, written = sample_text(run, state["parameters"])
    console.print("\nheld-out text, then what the model makes of it:")
    console.print(prompt, style="dim", end="", markup=False, highlight=False)
    console.print(written, markup=False, highlight=False)


def start(run: Run, saved: Saved | None) -> tuple[dict, float]:
    """The state on the mesh and the validation loss before training."""
    if saved is None:
        state = run.put_state(init_state(run.config))
        return state, validation_loss(run, state["parameters"])
    console.print(f"continuing at step {saved.step} of {run.config.steps} from {run.path}\n")
    return run.put_state(saved.state), saved.first_validation


def main(arguments: list[str] | None = None) -> int:
    given = flags().parse_args(arguments)
    again = os.environ.get("SHARDWISE_GENERATION", "0") != "0"  # the launcher restarted the run
    saved = load(given.save) if again or not given.fresh else None
    if saved and saved.finished:
        saved = None
    config = choose_config(given, saved)
    data, model = parse_mesh(given.mesh)
    check_config(config, data, model)
    started = time.perf_counter()
    run = Run(config, read_corpus(), make_mesh(data, model), given.save, given.save_every)
    console.quiet = sw.process_index() > 0
    state, before = start(run, saved)
    count = count_parameters(state["parameters"])
    console.print(f"{count:,} parameters, {run.corpus.size:,} bytes of text, {config}\n")
    show_layout(run, state)
    if int(state["step"]) < config.steps:
        check_against_one_device(run, state, int(state["step"]))
        trained = train(run, state, before)
        if trained is None:
            return 130
        state = trained
    report(run, state, before)
    save_run(run, state, before, finished=True)
    console.print(f"\nfinished in {time.perf_counter() - started:.0f} s; the trained state is in "
                  f"{run.path}; the next run starts fresh and replaces it")  # fmt: skip
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        console.print("\nstopped at once; the last saved state is intact")
        sys.exit(130)
