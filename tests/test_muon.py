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
        moved = float((b - before).detach().norm())
        assert float((a - b).detach().norm()) < 0.02 * moved, (
            "bf16 rounds a batched product its own way"
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("num_steps", [3, 5])
def test_in_one_type_it_steps_as_torch_does_to_rounding(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, num_steps: int
) -> None:
    """torch's Muon always rounds to bf16 before it orthogonalises. With that one cast taken out of it,
    the two differ by what batched products round differently."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    mine, theirs = matrices(dtype), matrices(dtype)
    optimizer = Muon(
        mine, lr=0.02, momentum=0.9, weight_decay=0.1, num_steps=num_steps, dtype=dtype
    )
    reference = torch.optim.Muon(
        theirs, lr=0.02, momentum=0.9, weight_decay=0.1, ns_steps=num_steps, adjust_lr_fn="original"
    )
    generator = torch.Generator().manual_seed(2)
    for _ in range(6):
        for a, b in zip(mine, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator, dtype=dtype)
            b.grad = a.grad.clone()
        optimizer.step()
        reference.step()
    for a, b, start in zip(mine, theirs, matrices(dtype), strict=True):
        difference, size, moved = (float(x.detach().norm()) for x in (a - b, b, b - start))
        assert difference < 20 * torch.finfo(dtype).eps * size < 0.1 * moved


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
