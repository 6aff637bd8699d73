"""Commands about runs: see them, compare them, measure their noise, replay what was not tracked."""

import argparse
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from sifirdan import runs
from sifirdan.errors import ConfigError, require


def ui(arguments: argparse.Namespace) -> int:
    """Serve the MLflow comparison on 127.0.0.1 until Ctrl-C."""
    from sifirdan import track

    require(1 <= arguments.port <= 65535, "--port", arguments.port, "1 to 65535")
    command = track.ui_command(arguments.port)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", arguments.port))
        except OSError:
            raise ConfigError(
                f"port {arguments.port} is taken by another program",
                expected="a free port",
                todo=f"make ui PORT={arguments.port + 1}",
            ) from None
    print(f"Open {track.ui_url(arguments.port)} in some seconds.\nCtrl-C ends it.", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = subprocess.Popen(
        command,
        env=os.environ | track.ui_environment(),
        start_new_session=True,  # Ctrl-C comes to us alone, and we end the server with its workers
    )
    try:
        return server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        print("\nThe page is closed.")
        return 0


def empty_bin(arguments: argparse.Namespace) -> None:
    """Delete for good the runs that you deleted on MLflow's page, and their files."""
    from sifirdan import track

    gone, held = track.empty_bin()
    print(f"{gone} runs are gone for good.")
    if held:
        print(
            f"{held} stay: they hold versions of registered models. Delete those on the page first."
        )


def replay(arguments: argparse.Namespace) -> None:
    """Give the tracking store what a run could not log."""
    from sifirdan import track

    for path in arguments.paths:
        print(f"{path}: {track.replay(path)}")


def compare(arguments: argparse.Namespace) -> None:
    """Set runs side by side: what changed in parameters and data, and what that did to the numbers.
    Prints the headlines and writes a page with the rest. One run alone is compared with the workspace."""
    from sifirdan.compare import comparison_text, run_records
    from sifirdan.compare.comparison import compare as compare_records
    from sifirdan.compare.noise import load_noise

    names = arguments.runs if len(arguments.runs) > 1 else [*arguments.runs, run_records.WORKSPACE]
    found = compare_records([run_records.load_record(name) for name in names], load_noise())
    if arguments.json:
        content = comparison_text.comparison_json(found)
        print(json.dumps(content, ensure_ascii=False, indent=2, default=str, allow_nan=False))
        return
    from sifirdan.pages.compare_page import compare_page

    for line in comparison_text.comparison_lines(found, whole=arguments.all):
        print(line)
    _write_page(arguments.out, compare_page(found))
    print(f"\ncurves, samples and all numbers: {arguments.out}")


def _write_page(path: Path, page: str) -> None:
    try:
        runs.write_text(path, page)
    except OSError as error:
        raise ConfigError(
            f"--out {path}: the page cannot be written there ({error.strerror})",
            expected="a file in a folder that you may write to",
            todo="name another place: --out compare.html",
        ) from None


def reference(arguments: argparse.Namespace) -> None:
    """Keep a run in reference/run.json as what later runs and pages are compared with; commit it."""
    from sifirdan.compare import run_records
    from sifirdan.compare.reference import REFERENCE_FILE

    record = run_records.load_record(arguments.run_name)
    name = run_records.write_reference(record, called=arguments.name)
    print(f"{REFERENCE_FILE}: {name}")
    print(f"  the numbers of {len(record.metrics)} stages: {', '.join(sorted(record.metrics))}")
    print(f"  {len(record.params)} parameters, the hashes of {len(record.hashes)} folders")
    print(f"commit it: git add {REFERENCE_FILE}")


def noise(arguments: argparse.Namespace) -> None:
    """Repeat a short training and its evaluation over seeds, and write to reference/noise.json how much
    each number moves. Finished seeds are kept: an interrupted command goes on."""
    from sifirdan.compare import noise_runs
    from sifirdan.compare.noise import NOISE_FILE, noise_lines

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either leaves nothing half-made
    made = noise_runs.plan(
        Path.cwd(), num_seeds=arguments.seeds, tokens=arguments.tokens, chat=arguments.chat
    )
    keys = ("tokens", "steps", "epochs")
    budget = {key: value for key in keys if (value := made.params["train"].get(key)) is not None}
    size = ", ".join(f"{value} {key}" for key, value in budget.items())
    print(f"{len(made.seeds)} runs of {size} each, models and metrics here stay as they are")
    found, missing = noise_runs.measure_noise(Path.cwd(), made)
    runs.write_json(NOISE_FILE, found)
    print("\n".join(noise_lines(found, missing)))
    print(f"They stand for longer runs too, where sigma is mostly a little smaller: {NOISE_FILE}")


def sweep(arguments: argparse.Namespace) -> None:
    """Train short runs of several settings equally long, over seeds, and say which are really better by bits
    per byte of val. Finished runs are kept: an interrupted command goes on."""
    from sifirdan.compare import scratch_runs, sweep_runs
    from sifirdan.compare import sweep as arithmetic
    from sifirdan.pages.sweep_page import sweep_page

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # either leaves nothing half-made
    project = Path.cwd()
    tried = arithmetic.variants(
        arguments.settings, scratch_runs.sections(project, arithmetic.SECTIONS)
    )
    minutes = None if arguments.epochs is not None else arguments.minutes or 2.0
    budget = sweep_runs.Budget(minutes, arguments.epochs)
    made = sweep_runs.plan(project, num_seeds=arguments.seeds, budget=budget)
    each = f"{budget.epochs:g} epochs" if minutes is None else f"{minutes:g} minutes"
    count = len(tried) * len(made.seeds)
    print(f"{count} runs of {each} each; models and metrics here stay as they are", flush=True)
    rows = sweep_runs.run(made, tried)
    print("\n".join(arithmetic.lines(rows)))
    print(f"bits per byte of all of val, mean ± standard deviation of {len(made.seeds)} seeds.")
    runs.write_json(arguments.out.with_suffix(".json"), arithmetic.record(rows, made.seeds))
    _write_page(arguments.out, sweep_page(rows, each=each, seeds=len(made.seeds)))
    print(f"\ncurves: {arguments.out}")
