"""Muon is torch's Muon, in stacks, and in whatever type it is asked to compute in."""

import pytest
import torch

from sifirdan.training.muon import Muon, orthogonalise

SHAPES = [(16, 16), (44, 16), (16, 16), (16, 44), (44, 16)]


def matrices(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in SHAPES]


def ours(parameters: list[torch.nn.Parameter], dtype: torch.dtype) -> Muon:
    return Muon(parameters, lr=0.02, momentum=0.9, weight_decay=0.1, num_steps=5, dtype=dtype)


def test_it_steps_as_torch_does() -> None:
    mine, theirs = matrices(), matrices()
    optimizer = ours(mine, torch.bfloat16)
    reference = torch.optim.Muon(
        theirs, lr=0.02, momentum=0.9, weight_decay=0.1, ns_steps=5, adjust_lr_fn="original"
    )
    start = [p.detach().clone() for p in mine]
    generator = torch.Generator().manual_seed(2)
    for _ in range(6):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        optimizer.step()
        reference.step()
    for a, b, before in zip(mine, theirs, start, strict=True):
        moved = float((b - before).norm())
        assert float((a - b).norm()) < 0.02 * moved, "bf16 rounds a batched product its own way"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_moves_every_direction_alike(dtype: torch.dtype) -> None:
    """Gradients whose singular values span a hundredfold give updates whose do not."""
    generator = torch.Generator().manual_seed(3)
    left = torch.linalg.qr(torch.randn(16, 16, generator=generator, dtype=dtype))[0]
    right = torch.linalg.qr(torch.randn(44, 16, generator=generator, dtype=dtype))[0]
    gradient = left @ torch.diag(torch.logspace(0, -2, 16, dtype=dtype)) @ right.mT
    (direction,) = orthogonalise(gradient[None], 8)
    assert direction.dtype == dtype
    values = torch.linalg.svdvals(direction)
    assert float(values.min()) > 0.6 and float(values.max()) < 1.3
    assert torch.equal(orthogonalise(torch.zeros(1, 4, 4), 5), torch.zeros(1, 4, 4))


def test_weight_decay_and_rate_hold_with_no_gradient_direction() -> None:
    parameters = matrices()
    before = [p.detach().clone() for p in parameters]
    optimizer = ours(parameters, torch.float32)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, was in zip(parameters, before, strict=True):
        assert torch.allclose(parameter, was * (1 - 0.02 * 0.1))
