"""What becomes of a training that is killed, stopped, out of disk or damaged, at any moment. POSIX.

    python -m bench.interruptions [--points 25] [--seed 1] [--tracked 5] [--stage both] [--short] [--json]

Trains a tiny model with the real stages `train` and `finetune`, once alone and then once a row with a
fault: SIGKILL at places drawn over the steps and around every write, fsync and rename of a save, right
after a resume, again and again in one run; SIGTERM; a full disk; a damaged, missing or forged file of the newest
state. Each time the command is given again until it ends, and weights and curve are compared with
the run that was left alone, in some rows MLflow's curve too. Exit status 1 where any row differs.
"""

import argparse
import json
import os
import pickle
import random
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import faults
from bench.faults import Fault
from bench.processes import workplace
from bench.tiny_training import INTERVAL, STEPS, UPDATES, import_once, prepare, write_params
from sifirdan import runs
from stages import finetune, train

FILES = ("weights.safetensors", "optimizer.safetensors", "state.json")
DAMAGES = ("cut", "one bit flipped", "missing", "a pickle")
OUTPUTS = {"train": "base", "finetune": "chat"}
MAINS: dict[str, Callable[[], None]] = {"train": train.main, "finetune": finetune.main}


@dataclass
class Row:
    """A run with what was done to it, and what came of it. `resumed` is the step at which it went on
    after the first fault; `lost` how many steps were computed again then."""

    stage: str
    fault: str
    starts: int = 0
    resumed: int = 0
    lost: int = 0
    same_weights: bool = False
    same_curve: bool = False
    tracked: str = "-"
    note: str = ""
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        whole = self.same_weights and self.same_curve and self.tracked in ("-", "one line")
        return whole and self.lost <= INTERVAL and not self.note.startswith("WRONG")


class Place:
    """A tiny project, one stage of which is run again and again."""

    def __init__(self, project: Path, stage: str) -> None:
        self.project, self.stage = project, stage
        self.out = project / "models" / OUTPUTS[stage]
        self.curve = project / "reports" / stage / "curve.jsonl"
        self.states = project / "models/.resume" / stage
        self.expected: tuple[str, str] = ("", "")

    def reset(self) -> None:
        """As before the first run."""
        self.take_outputs()
        for left in (self.states, self.project / ".track", self.project / "mlartifacts"):
            shutil.rmtree(left, ignore_errors=True)
        template = self.project / "empty.db"
        if template.exists():
            shutil.copy(template, self.project / "mlflow.db")

    def take_outputs(self) -> None:
        """What DVC does before it runs a stage."""
        for folder in (self.out, self.curve.parent):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, fault: Fault | None = None, *, tracked: bool = False) -> faults.Ended:
        self.take_outputs()
        return faults.run(MAINS[self.stage], self.project, fault, tracked=tracked)

    def result(self) -> tuple[str, str]:
        """sha256 of the weights, and the curve."""
        runs.open_folder(self.out, "model", made_by=self.stage)
        curve = self.curve.read_text(encoding="utf-8")
        return runs.sha256_of(self.out / "model.safetensors"), curve

    def newest(self) -> Path:
        return max(self.states.glob("*/step-*"))

    def judge(self, row: Row, ended: faults.Ended) -> None:
        """Whether the run that ended is like the one left alone."""
        if ended.status:
            row.note = f"WRONG: ended with {ended.status}: {ended.said[-600:]}"
            return
        weights, curve = self.result()
        row.same_weights, row.same_curve = weights == self.expected[0], curve == self.expected[1]
        left = [p.name for p in self.project.glob("*/.*") if p.suffix in (".partial", ".old")]
        if left or any(self.states.parent.glob("*/*")):
            row.note = f"WRONG: left behind: {left or 'a saved state'}"


def resumed_at(ended: faults.Ended) -> int:
    found = re.findall(r"resume: continuing at step (\d+) of", ended.said)
    return int(found[-1]) if found else 0


def reached(ended: faults.Ended) -> int:
    """The last step that a process with a fault began to apply."""
    return resumed_at(ended) + ended.said.count(faults.UPDATED)


def killed(
    place: Place, faults_in_turn: list[Fault], *, tracked: bool = False, name: str = ""
) -> Row:
    """One run with these faults, one a start, and then to its end."""
    row = Row(place.stage, name or ", then ".join(map(str, faults_in_turn)))
    begun = time.perf_counter()
    place.reset()
    last = 0
    for fault in [*faults_in_turn, None]:
        ended = place.start(fault, tracked=tracked)
        row.starts += 1
        if fault and fault.place == "resumed":
            pass  # it read the state and came to say nothing
        else:
            row.lost = max(row.lost, last - resumed_at(ended))
            row.resumed = row.resumed or resumed_at(ended)
            last = reached(ended)
        problem = unexpected(fault, ended)
        if problem:
            row.note = f"WRONG: {problem}: {ended.said[-600:]}"
            break
    else:
        place.judge(row, ended)
    if tracked and not row.note:
        row.tracked = tracked_curve(place)
    row.seconds = time.perf_counter() - begun
    return row


def unexpected(fault: Fault | None, ended: faults.Ended) -> str:
    """What is wrong with the way a process ended; empty where it ended as it should."""
    wanted = {"kill": -9, "stop": 130, "full": 1, "limit": 1, "low": 1}[fault.how] if fault else 0
    if ended.status != wanted:
        return f"ended with {ended.status}, not {wanted}"
    if wanted == 1:
        words = ("could not be saved", "MB free there", "what to do: free disk space")
        if fault and fault.place != "output" and not all(word in ended.said for word in words):
            return "the message lacks a part"
        return "a traceback" if "Traceback" in ended.said else ""
    return ""


def tracked_curve(place: Place) -> str:
    """ "one line" where MLflow holds each point of the curve once, in the child that may ask it."""
    out = place.project / "tracked.json"

    def ask() -> None:
        import mlflow

        client = mlflow.MlflowClient(f"sqlite:///{place.project}/mlflow.db")
        experiment = client.get_experiment_by_name("sifirdan")
        query = f"tags.stage = '{place.stage}' and attributes.status = 'FINISHED'"
        found = client.search_runs([experiment.experiment_id], query)
        steps = [
            [point.step for point in client.get_metric_history(run.info.run_id, "loss")]
            or [
                point.step
                for point in client.get_metric_history(run.info.run_id, f"{place.stage}/loss")
            ]
            or [point.step for point in client.get_metric_history(run.info.run_id, "sft/loss")]
            for run in found
        ]
        out.write_text(json.dumps(steps))

    ended = faults.run(ask, place.project, None, tracked=True)
    if ended.status:
        return f"WRONG: {ended.said[-300:]}"
    expected = [json.loads(line)["step"] for line in place.curve.read_text().splitlines()]
    steps = json.loads(out.read_text())
    return "one line" if list(map(sorted, steps)) == [expected] else f"WRONG: {steps}"


def points(count: int, rng: random.Random) -> list[list[Fault]]:
    """`count` different places to be killed at: first those around the system calls of a save and of
    the outputs and those right after a resume, then steps drawn at random."""
    saves = list(range(3, STEPS // INTERVAL))

    def at(place: str, when: str, inner: int = 1) -> list[Fault]:
        return [Fault(place, rng.choice(saves), when, "kill", inner)]

    def step() -> Fault:
        return Fault(
            "step",
            rng.randint(UPDATES * (INTERVAL + 1), UPDATES * (STEPS - 3)),
            rng.choice(("before", "after")),
        )

    placed = [
        at("write", "before"), at("write", "halfway", 1), at("write", "halfway", 2),
        at("write", "halfway", 3), at("write", "after", 3),
        at("fsync", "before", 1), at("fsync", "after", rng.randint(2, 5)),
        at("rename", "before", 1), at("rename", "after", 1),
        at("rename", "before", 2), at("rename", "after", 2), at("remove", "halfway", 2),
        [step(), Fault("resumed", 1, "after")], [step(), Fault("step", 1, "before")],
        [step(), Fault("step", 3, "after"), Fault("resumed", 1, "after")],
        [Fault("output", rng.randint(1, 2), "before")], [Fault("output", 2, "after")],
    ]  # fmt: skip
    rng.shuffle(placed)
    drawn = sorted(rng.sample(range(1, UPDATES * STEPS), max(0, count - len(placed))))
    return placed[:count] + [[Fault("step", n, rng.choice(("before", "after")))] for n in drawn]


def polite(rng: random.Random) -> list[list[Fault]]:
    """Asked to stop within a step, in a save, and twice in one run."""
    first, second = (Fault("step", rng.randint(4, 20), "after", "stop") for _ in range(2))
    return [[first], [Fault("write", 3, "before", "stop")], [first, second]]


def full_disk() -> list[list[Fault]]:
    """No room at each kind of system call of a save, cut off in each file, and known beforehand."""
    calls = [("write", 1), ("write", 2), ("write", 3), ("fsync", 1), ("fsync", 4), ("rename", 1), ("rename", 2)]  # fmt: skip
    failing = [[Fault(place, 4, "before", "full", inner)] for place, inner in calls]
    limits = [[Fault("save", 4, "before", "limit", size)] for size in (4000, 100_000)]
    low = [[Fault("save", number, "before", "low")] for number in (1, 4)]
    return failing + limits + low


class Attack:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.marker, "w"))


def damage(file: Path, how: str, marker: Path) -> None:
    content = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[: len(content) * 2 // 3])
    elif how == "one bit flipped":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    else:
        file.write_bytes(pickle.dumps(Attack(marker)))


def damaged(place: Place, file: str, how: str, *, all_states: bool = False) -> Row:
    """A run killed at a step, whose newest state is damaged, or every one, and then to its end."""
    row = Row(place.stage, f"{'every' if all_states else 'newest'} {file}: {how}", starts=2)
    begun = time.perf_counter()
    place.reset()
    place.start(Fault("save", 5, "after"))
    newest, marker = place.newest(), place.project / "marker"
    for state in place.states.glob("*/step-*") if all_states else [newest]:
        damage(state / file, how, marker)
    ended = place.start()
    row.resumed = resumed_at(ended)
    place.judge(row, ended)
    said = f"resume: skipping {newest.name}: {file}" in ended.said
    wanted = 0 if all_states else int(newest.name[5:]) - INTERVAL
    if not said or marker.exists() or row.resumed != wanted:
        row.note = f"WRONG: said={said} marker={marker.exists()} resumed={row.resumed}: {ended.said[-600:]}"
    row.seconds = time.perf_counter() - begun
    return row


def chain(place: Place, rng: random.Random) -> Row:
    """One run that is killed again and again, each time a few steps further."""
    each = [
        Fault("step", rng.randint(UPDATES * INTERVAL, 2 * UPDATES * INTERVAL), "after")
        for _ in range(12)
    ]
    row = Row(place.stage, "kill again and again, until it ends by itself")
    begun = time.perf_counter()
    place.reset()
    for fault in each * 5:
        ended = place.start(fault)
        row.starts += 1
        row.resumed = max(row.resumed, resumed_at(ended))
        if ended.status != -9:
            break
    place.judge(row, ended)
    row.seconds = time.perf_counter() - begun
    return row


def scenarios(place: Place, arguments: argparse.Namespace) -> list[Callable[[], Row]]:
    """What is done to a stage, in turn. In short, `finetune` is killed at few points, and of full
    disks and damages some are tried."""
    rng = random.Random(arguments.seed)
    few = arguments.short and place.stage == "finetune"
    killing = points(arguments.points, rng)[:: 8 if few else 1]
    told = (
        set(range(0, len(killing), max(1, len(killing) // arguments.tracked)))
        if arguments.tracked and not few
        else set()
    )
    kills = [partial(killed, place, each, tracked=n in told) for n, each in enumerate(killing)]
    others = [partial(killed, place, each) for each in polite(rng) + full_disk()]
    others += [partial(damaged, place, file, how) for file in FILES for how in DAMAGES]
    others += [partial(damaged, place, file, "cut", all_states=True) for file in FILES]
    return [*kills, partial(chain, place, rng), *others[:: 5 if arguments.short else 1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=25, help="places to be killed at")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tracked", type=int, default=5, help="about so many of them with MLflow")
    parser.add_argument("--stage", choices=[*MAINS, "both"], default="both")
    parser.add_argument("--short", action="store_true", help="fewer faults beside the kills")
    parser.add_argument("--json", action="store_true", help="rows as JSON, and no table")
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_STAGE", "DVC_EXP_NAME"):
        os.environ.pop(name, None)
    import_once(tracked=bool(arguments.tracked))
    with workplace() as folder:
        project = folder / "ığdır projesi"
        rows = run_all(project, arguments)
    if arguments.json:
        print(json.dumps([asdict(row) | {"good": row.good} for row in rows]))
    return 0 if all(row.good for row in rows) else 1


def run_all(project: Path, arguments: argparse.Namespace) -> list[Row]:
    project.mkdir()
    write_params(project)
    made = faults.run(
        lambda: prepare(project, tracked=bool(arguments.tracked)), project, None, tracked=True
    )
    assert made.status == 0, made.said
    rows: list[Row] = []
    for stage in MAINS:
        place = Place(project, stage)
        place.reset()
        alone = place.start()
        assert alone.status == 0, alone.said
        place.expected = place.result()
        if arguments.stage not in (stage, "both"):
            continue
        for job in scenarios(place, arguments):
            rows.append(job())
            if not arguments.json:
                show(len(rows), rows[-1])
        place.reset()
        place.start()  # what the next stage reads
    if not arguments.json:
        good, later = sum(row.good for row in rows), sum(row.resumed > 0 for row in rows)
        print(
            f"{good} of {len(rows)} rows end like the run left alone; {later} went on at a step > 0"
        )
    return rows


def show(number: int, row: Row) -> None:
    if number == 1:
        print(
            f"{'':4} {'stage':8} {'fault':70} starts resumed lost weights curve MLflow    seconds"
        )
    same = ["same " if value else "OTHER" for value in (row.same_weights, row.same_curve)]
    print(
        f"{number:4} {row.stage:8} {row.fault[:70]:70} {row.starts:6} {row.resumed:7} {row.lost:4} "
        f"{same[0]:7} {same[1]} {row.tracked:9} {row.seconds:7.1f} {row.note}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
