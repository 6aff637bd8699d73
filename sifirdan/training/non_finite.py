"""Numbers that are not finite: which windows and documents made them, and no state that holds any.

Only called when a gradient's norm is infinite or NaN, and before a state is saved; an ordinary step
pays nothing for it. Not for gradients that are large but finite: the loop clips those.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from sifirdan.corpus.loader import Batches
from sifirdan.distributed import ALONE, World, full, local
from sifirdan.errors import DataError
from sifirdan.model.transformer import Transformer

NAMED = 8  # windows and documents named in a message; the rest are counted


def batch_refusal(
    step: int,
    numbers: range,
    batches: Batches,
    model: Transformer,
    loss_of: Callable[[Mapping[str, Tensor]], Tensor],
    world: World = ALONE,
) -> DataError:
    """The error for a step whose gradient, over the batches `numbers`, is not finite. Each window is
    passed again by itself, so that only those at fault are named. Of several processes each looks at its
    own, and all get the same error; under `fsdp` those passed in the same moment share a gradient, and are
    named together."""
    here = [window for number in numbers for window in batches.window_numbers(number)]
    guilty = [window for window in here if not _is_finite(model, loss_of, batches, window)]
    model.zero_grad(set_to_none=True)
    documents = sorted({name for window in guilty for name in batches.windows.documents(window)})
    who = (
        f"windows {_some(guilty)}, of the documents {_some(documents)}"
        if guilty
        else f"each of its {len(here)} windows, from {here[0]} to {here[-1]}, by itself is finite"
        if world.size > 1
        else f"each of its windows {here[0]} to {here[-1]} by itself is finite"
    )
    found = world.gather_texts(who)
    if world.size > 1:
        who = "; ".join(f"process {rank}: {text}" for rank, text in enumerate(found))
        if world.is_sharded and guilty:
            who += " (one of those named at the same place of each list is enough)"
    return DataError(
        f"step {step}: the gradient of batch {numbers[0]}"
        f"{f' to {numbers[-1]}' if len(numbers) > 1 else ''} is not finite: {who}; "
        "the weights and the states saved before it are kept",
        expected="finite gradients",
        todo="lower the learning rates (the section's optimizer), set precision to fp32, or look at "
        "those documents (sifirdan ledger --why ID)",
    )


@torch.no_grad()
def require_finite_state(
    model: Transformer, optimizers: list[Optimizer], step: int, world: World = ALONE
) -> None:
    """Refuse to save weights or optimiser states with NaN or infinite numbers: the newest saved state
    is always one that training can go on from."""
    named = dict(model.named_parameters())
    for number, optimizer in enumerate(optimizers):
        for index, entry in optimizer.state_dict()["state"].items():
            named |= {f"optimiser {number}.{index}.{key}": value for key, value in entry.items()}
    bad = (
        name
        for name, value in named.items()
        if not bool(torch.isfinite(local(torch.as_tensor(value))).all())
    )
    for name in filter(None, world.gather_texts(next(bad, ""))):  # any process's
        raise DataError(
            f"step {step}: {name} is not finite any more; the states saved before it are kept",
            expected="finite numbers",
            todo="lower the learning rates (the section's optimizer)",
        )


def _is_finite(
    model: Transformer,
    loss_of: Callable[[Mapping[str, Tensor]], Tensor],
    batches: Batches,
    window: int,
) -> bool:
    model.zero_grad(set_to_none=True)
    row, device = batches.windows.window(window), next(model.parameters()).device
    loss_of(
        {name: torch.from_numpy(value)[None].to(device) for name, value in row.items()}
    ).backward()
    return all(
        bool(torch.isfinite(full(parameter.grad)).all())
        for parameter in model.parameters()
        if parameter.grad is not None
    )


def _some(names: list[int] | list[str]) -> str:
    shown = ", ".join(map(str, names[:NAMED]))
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
