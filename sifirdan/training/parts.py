"""The tensors of a saved state, in one file or in one a process: each process writes its own rows.

`weights.safetensors` of one process is `weights-1-of-2.safetensors` and so on of two, with a `.json`
beside each that says which rows of which tensor it holds. Reading goes by rows as well, so that any
number of processes, under `ddp` or `fsdp`, continues what any other number has saved.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sifirdan import runs
from sifirdan.distributed import World, local
from sifirdan.errors import CheckpointError

OWN = "random."  # tensors of this prefix differ between processes; the others are shared
# Facts in a fingerprint that follow from how many processes there are: a run may go on without them
# being the same, but its sums then differ in the last bits.
_FACTS_OF_PROCESSES = (
    "processes",
    "parallel",
    "micro_batch",
    "threads",
    "compiled",
    "logits_chunk",
)


def write(file: Path, tensors: Mapping[str, Tensor], world: World) -> list[Path]:
    """Write `tensors` as `file`, or this process's part of them; returns what was written."""
    if world.size == 1:
        save_file(dict(tensors), file)
        return [file]
    parts: dict[str, Tensor] = {}
    rows: dict[str, list[int] | None] = {}  # start, stop, of how many; none: the whole
    for name, tensor in tensors.items():
        if name.startswith(OWN) or (tensor.ndim == 0 and world.is_first):
            parts[name], rows[name] = local(tensor), None
        elif tensor.ndim:
            start, stop = rows_of(len(tensor), world.rank, world.size)
            part = local(tensor) if world.is_sharded else tensor[start:stop]
            assert len(part) == stop - start, (name, part.shape, start, stop)
            if stop > start:
                parts[name], rows[name] = part.contiguous(), [start, stop, len(tensor)]
    part_file = part_of(file, world.rank, world.size)
    save_file(parts, part_file)
    runs.write_json(part_file.with_suffix(".json"), {"rows": rows})
    return [part_file, part_file.with_suffix(".json")]


def read(
    file: Path, processes: int, like: Callable[[str], Tensor | None], world: World
) -> dict[str, Tensor]:
    """The tensors that `processes` processes wrote as `file`; those `like` a sharded one come as this
    process's rows of it. Random states come where the number of processes is still the same."""
    places: dict[str, list[_Rows]] = {}
    for rank in range(processes):
        part_file = part_of(file, rank, processes)
        for name, rows in _content(part_file, processes).items():
            if not name.startswith(OWN):
                places.setdefault(name, []).append(rows)
            elif processes == world.size and rank == world.rank:
                places[name] = [rows]
    return {name: _assemble(name, rows, like(name), world) for name, rows in places.items()}


def part_of(file: Path, rank: int, size: int) -> Path:
    """The name of one process's part of a file; alone it has all of it."""
    if size == 1:
        return file
    return file.with_name(f"{file.stem}-{rank + 1}-of-{size}{file.suffix}")


def rows_of(num_rows: int, rank: int, size: int) -> tuple[int, int]:
    """The rows that are a process's own, start and stop: as FSDP2 shards them, the last may get none."""
    each = -(-num_rows // size)
    return min(num_rows, rank * each), min(num_rows, (rank + 1) * each)


def differs_in_processes_only(ours: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two fingerprints are of the same run on another number of processes."""
    mine, theirs = (dict(print_.get("runtime", {})) for print_ in (ours, other))
    same_world = all(mine.get(key) == theirs.get(key) for key in _FACTS_OF_PROCESSES[:2])
    for key in _FACTS_OF_PROCESSES:
        mine.pop(key, None)
        theirs.pop(key, None)
    return not same_world and dict(ours) | {"runtime": mine} == dict(other) | {"runtime": theirs}


def processes_of(fingerprint: Mapping[str, Any]) -> str:
    """On how many processes a run is, in words."""
    runtime = fingerprint.get("runtime", {})
    if "processes" not in runtime:
        return "1 process"
    return f"{runtime['processes']} processes ({runtime['parallel']})"


class _Rows:
    """Rows `start` to `stop` of a tensor's `of`, in an open file; a tensor without rows, or a process's own,
    is whole."""

    def __init__(self, file: Any, name: str, rows: list[int] | None) -> None:
        self.file, self.name = file, name
        self.is_whole = rows is None
        self.start, self.stop, self.of = rows or (0, 0, 0)

    def read(self, start: int, stop: int) -> Tensor:
        part: Tensor = self.file.get_slice(self.name)[start - self.start : stop - self.start]
        return part


def _content(file: Path, processes: int) -> dict[str, _Rows]:
    opened = safe_open(file, framework="pt")
    if processes > 1:
        listed = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))["rows"]
        return {name: _Rows(opened, name, rows) for name, rows in listed.items()}
    shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
    return {
        name: _Rows(
            opened, name, [0, shape[0], shape[0]] if shape and not name.startswith(OWN) else None
        )
        for name, shape in shapes.items()
    }


def _assemble(name: str, parts: list[_Rows], like: Tensor | None, world: World) -> Tensor:
    if parts[0].is_whole:
        whole: Tensor = parts[0].file.get_tensor(name)
        return whole
    parts = sorted(parts, key=lambda part: part.start)
    end = 0
    for part in parts:
        if part.start != end:
            raise CheckpointError(f"{name}: rows {end} to {part.start} are in no part or in two")
        end = part.stop
    if end != parts[0].of:
        raise CheckpointError(f"{name}: rows {end} to {parts[0].of} are in no part")
    if like is None or not hasattr(like, "to_local") or len(like) != end:
        return _read_rows(parts, 0, end)
    return _sharded(_read_rows(parts, *rows_of(end, world.rank, world.size)), like)


def _read_rows(parts: list[_Rows], start: int, stop: int) -> Tensor:
    pieces = [
        part.read(max(start, part.start), min(stop, part.stop))
        for part in parts
        if part.start < stop and part.stop > start
    ]
    return torch.cat(pieces) if pieces else parts[0].read(0, 0)


def _sharded(rows: Tensor, like: Tensor) -> Tensor:
    """This process's rows as a sharded tensor like another."""
    from torch.distributed.tensor import DTensor

    assert isinstance(like, DTensor)
    return DTensor.from_local(
        rows.to(like.to_local().device), like.device_mesh, like.placements,
        run_check=False, shape=like.shape, stride=like.stride(),
    )  # fmt: skip


def merged(own: Mapping[str, str], world: World) -> dict[str, str]:
    """Every process's entries together."""
    together: dict[str, str] = {}
    for text in world.gather_texts(json.dumps(own)):
        together |= json.loads(text)
    return together
