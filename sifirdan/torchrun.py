"""Where torchrun's variables ask for several processes: a stage starts itself again in each of them,
they join, one tracks, and they end together. Not for what they compute together: `distributed`.
"""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from sifirdan.device import pick_device
from sifirdan.distributed import ALONE, World, current
from sifirdan.errors import ConfigError, DataError, SifirdanError, require
from sifirdan.runtime import Runtime

WAIT_FOR_FIRST = timedelta(seconds=10)  # for process 0 to say why the run ends, before others go
# Windows has no SIGHUP
_PASSED_ON = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
_LEFT = "first process has left"  # a key in torchrun's store
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
_LOST = ("Connection closed by peer", "Connection reset", "Broken pipe", "Socket closed")


def is_asked_for() -> bool:
    """Whether the environment asks for several processes, and this is not yet one of them."""
    asked = [os.environ.get(name) or "1" for name in ("PET_NPROC_PER_NODE", "PET_NNODES")]
    return asked != ["1", "1"] and not dist.is_torchelastic_launched()


def launch(module: str) -> int:
    """Run `python -m module` in the processes that torchrun's variables (PET_…) ask for; returns the
    exit code. The command line stays that of one process, and so does what DVC records."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    arguments = ["-m", module]
    elsewhere = {"PET_NNODES", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT", "PET_STANDALONE"}
    if not elsewhere & os.environ.keys():
        # On a free port; the machine's own name need not lead anywhere.
        arguments = ["--standalone", "--local-addr", "127.0.0.1", *arguments]
    if _ignores_hangups() and "PET_SIGNALS_TO_HANDLE" not in os.environ:
        arguments = ["--signals-to-handle", "SIGTERM,SIGINT,SIGQUIT", *arguments]
    count = os.environ.get("PET_NPROC_PER_NODE", "1")
    if count.isdecimal():
        threads = max(1, (os.cpu_count() or 1) // max(1, int(count)))
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    try:
        torchrun.run(torchrun.parse_args(arguments))
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        return code if code > 0 else 128 - code
    except SignalException:
        return 130
    except (ValueError, AssertionError, RuntimeError, RendezvousError) as error:
        asked = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("PET_")]
        raise ConfigError(
            f"torchrun has failed: {str(error) or type(error).__name__}",
            expected=f"variables that fit this machine (they are {' '.join(sorted(asked))})",
            todo="change or unset them; docs/SCALING.md says what they mean",
        ) from error
    return 0


def _ignores_hangups() -> bool:
    """Whether it was started with nohup, which torchrun would undo."""
    return hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


@contextlib.contextmanager
def processes(runtime: Runtime) -> Iterator[World]:
    """Join the processes that torchrun has started; alone, there is nothing to join. When one process
    fails, all end within seconds; process 0 is given the time to say and to record why."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    store = _join(runtime)
    world = current(runtime)
    logging.getLogger(__name__).info(
        "processes: %d share each step, parallel=%s", world.size, world.parallel
    )
    try:
        yield world
    except BaseException as error:
        if world.is_first:
            for number in _PASSED_ON:  # by torchrun, to a process that is leaving
                signal.signal(number, signal.SIG_IGN)
            if (explained := _explained(error)) is not error:
                raise explained from error
            raise
        _say(world.rank, error)
        if world.device == "cpu":
            dist.destroy_process_group()  # whoever waits for this process hears of it at once
        with contextlib.suppress(dist.DistError):
            store.wait([_LEFT], WAIT_FOR_FIRST)
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        if world.device != "cpu":
            os._exit(code)  # an orderly end would wait for what is still queued on the GPU
        raise SystemExit(code) from None
    finally:
        if world.is_first:
            # torchrun, which keeps the store, may be gone
            with contextlib.suppress(dist.DistError):
                store.set(_LEFT, "")
    dist.destroy_process_group()


def _join(runtime: Runtime) -> Any:
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    device, place = pick_device(runtime.device), int(os.environ.get("LOCAL_RANK", "0"))
    require(
        device.type in ("cpu", "cuda"), "runtime.device", device.type,
        "cpu or cuda, where several processes train", "unset PET_NPROC_PER_NODE",
    )  # fmt: skip
    if device.type == "cuda":
        require(
            place < torch.cuda.device_count(), "PET_NPROC_PER_NODE",
            os.environ.get("LOCAL_WORLD_SIZE"), f"at most {torch.cuda.device_count()}, the GPUs here",
        )  # fmt: skip
        torch.cuda.set_device(place)
    _end_with_torchrun()
    store, rank, size = next(iter(rendezvous("env://")))
    if rank:
        logging.disable(logging.WARNING)
    # Small agreements go over the CPU: they never wait for a GPU's queue.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size)
    return store


def _end_with_torchrun() -> None:
    """Where the kernel can (Linux), a torchrun that is killed leaves no processes that train on unseen and
    hold the lock: each is asked to stop, as by a SIGTERM."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def _explained(error: BaseException) -> BaseException:
    """The error, or in words that another process has gone while this one waited for it."""
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _LOST):
        return DataError(
            "another process of this run has ended; what it said stands above or below",
            todo="mend that, then run the same command again: it continues from the newest saved state",
        )
    return error


def _say(rank: int, error: BaseException) -> None:
    """What a process other than the first says of its end; of an agreed stop, nothing."""
    error = _explained(error)
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return
    text = (
        f"{type(error).__name__}: {error}"
        if isinstance(error, SifirdanError)
        else "".join(traceback.format_exception(error))
    )
    sys.stderr.write(f"\nprocess {rank}: {text}\n")
    sys.stderr.flush()


class Silent:
    """What a process other than the first tracks: nothing."""

    run_id = ""

    def reopen(self, run_id: str) -> None:
        """Nothing."""

    def log_axes(self, metrics: Mapping[str, Any]) -> None:
        """Nothing."""

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Nothing."""

    def log_artifact(self, path: Path) -> None:
        """Nothing."""

    def finish(self, metrics: Mapping[str, Any], path: Path) -> None:
        """Nothing."""


@contextlib.contextmanager
def silent_stage(name: str, **_what: object) -> Iterator[Any]:
    """In place of `track.stage`, in every process but the first."""
    yield Silent()
