"""What a saved state holds of optimisers and random generators, as tensors with names, and back into them.

`1.4.exp_avg` is that of the fifth parameter of the second optimiser. Not for files (parts.py), and not
for what becomes of a state that is damaged (resume.py).
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from sifirdan.errors import CheckpointError


def optimizer_tensors(optimizers: list[Optimizer]) -> dict[str, Tensor]:
    """The state of every parameter, by name; of sharded ones this process's rows as they are."""
    tensors = {}
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            for key, value in entry.items():
                tensors[f"{number}.{index}.{key}"] = torch.as_tensor(value).cpu().contiguous()
    return tensors


def parameter_of(optimizers: list[Optimizer]) -> Callable[[str], Tensor | None]:
    """A function from the name of a saved tensor to the parameter whose state it is."""
    parameters = {
        f"{number}.{index}": parameter
        for number, optimizer in enumerate(optimizers)
        for index, parameter in enumerate(
            parameter for group in optimizer.param_groups for parameter in group["params"]
        )
    }
    return lambda name: parameters.get(name.rpartition(".")[0])


def set_optimizer_tensors(optimizers: list[Optimizer], tensors: dict[str, Tensor]) -> None:
    for number, optimizer in enumerate(optimizers):
        content = optimizer.state_dict()
        content["state"] = {}
        for name, value in tensors.items():
            owner, _, rest = name.partition(".")
            if owner == str(number):
                index, _, key = rest.partition(".")
                # a copy: what was loaded is the file itself, mapped, which is deleted one day
                content["state"].setdefault(int(index), {})[key] = value.clone()
        optimizer.load_state_dict(content)


def require_complete(
    optimizers: list[Optimizer], tensors: dict[str, Tensor], own_random: bool, *, file: Path
) -> None:
    """Refuse what lacks the state of a parameter, or of the generator if it was saved by as many
    processes. `file` is where the tensors were, in the folder of their state."""
    todo = f"rm -r {file.parent}"
    if own_random and "random.cpu" not in tensors:
        raise CheckpointError(f"{file}: random.cpu is missing", todo=todo)
    for number, optimizer in enumerate(optimizers):
        owned = {name.split(".")[1] for name in tensors if name.split(".")[0] == str(number)}
        expected = sum(len(group["params"]) for group in optimizer.param_groups)
        if len(owned) != expected:
            raise CheckpointError(
                f"{file}: has state of {len(owned)} parameters", expected=f"{expected}", todo=todo
            )


def random_states() -> dict[str, Tensor]:
    """Torch's generators, in which processes differ: the names begin with parts.OWN."""
    states = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(tensors: dict[str, Tensor], step: int) -> None:
    """Back to where they were saved, or, without that, to a place of their own for each step."""
    if "random.cpu" not in tensors:  # saved by another number of processes
        torch.manual_seed(torch.initial_seed() + step)
        return
    torch.set_rng_state(tensors["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"])
