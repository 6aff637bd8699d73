"""Several training loops that take turns on one machine: each lives in a process of its own, and only
one runs at a time, so that noise of the machine hits all of them alike.

The bench holds a `Side` for each process; inside, the loop calls `Turns.step` before every step.
They talk in lines of JSON over the process's standard input and output.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any


class TimeUp(Exception):
    """Raised before the step that would come after the last turn."""


@dataclass
class Turns:
    """What a loop asks before each step. `budget` are the seconds that its schedule is made for.
    Compiling and warming up, in turns that do not count, are no part of them."""

    budget: float
    seconds: float = 0.0  # of all turns that count
    steps: int = 0
    _order: dict[str, Any] = field(default_factory=dict)
    _start: float = 0.0
    _cpu_start: float = 0.0
    _done: int = 0

    def step(self) -> None:
        """Return at once inside a turn, wait between turns, raise TimeUp after the last."""
        now = time.perf_counter()
        if self._order:
            self._done += 1
            spent = now - self._start
            if spent < self._order["seconds"]:
                return
            if self._order["counts"]:
                self.seconds, self.steps = self.seconds + spent, self.steps + self._done
            cpu = time.process_time() - self._cpu_start
            say({"steps": self._done, "seconds": spent, "cpu_seconds": cpu})
        self._order = json.loads(sys.stdin.readline() or '{"end": true}')
        if "end" in self._order:
            raise TimeUp
        self._start, self._done = time.perf_counter(), 0
        self._cpu_start = time.process_time()

    def progress(self) -> float:
        """The part of the budget that is spent, 0 to 1."""
        running = time.perf_counter() - self._start if self._order.get("counts") else 0.0
        return min(1.0, (self.seconds + running) / self.budget)


def say(answer: dict[str, Any]) -> None:
    """Answer the bench, unless it has gone. What else a process prints must go to standard error."""
    try:
        print(json.dumps(answer), flush=True)
    except BrokenPipeError:
        os._exit(1)


class Side:
    """A process with a loop in it, as the bench sees it: `python -m module --side SETTING`."""

    def __init__(self, module: str, setting: dict[str, Any], **environment: str) -> None:
        self.setting = setting
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--side", json.dumps(setting)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def turn(self, seconds: float, *, counts: bool = True) -> dict[str, Any]:
        """Let it run for whole steps until `seconds` have passed, at least one; returns `steps`,
        `seconds` and, of all its threads, `cpu_seconds`."""
        return self._ask({"seconds": seconds, "counts": counts})

    def end(self) -> dict[str, Any]:
        """Its last answer, after the last turn."""
        answer = self._ask({"end": True})
        self._process.communicate()
        return answer

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the side {self.setting} failed with {self._process.wait()}")
        return json.loads(line)
