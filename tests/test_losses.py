"""The loss in chunks is the loss over all logits, in value and gradient, for less memory."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import tiny_model

from sifirdan.corpus.loader import IGNORE
from sifirdan.model.transformer import Transformer
from sifirdan.training.losses import ChunkedCrossEntropy, cross_entropy_sum, loss_function
from sifirdan.training.memory import MAX_LOGITS_BYTES, logits_chunk

ROOT = Path(__file__).parents[1]


def batch(vocab_size: int, length: int = 24) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Inputs, targets of which some are masked, positions."""
    ids = torch.randint(0, vocab_size, (3, length + 1), generator=torch.Generator().manual_seed(1))
    targets = ids[:, 1:].clone()
    targets[0, :7] = targets[2, -2:] = IGNORE
    return ids[:, :-1], targets, torch.arange(length)[None]


def loss_and_gradients(
    model: Transformer, chunk: int | None, dtype: torch.dtype, *, compiled: bool = False
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    inputs, targets, positions = batch(model.config.vocab_size)
    model.zero_grad()
    embedded = model.embed(inputs, dtype)
    loss = loss_function(compiled, chunk)(model, embedded, targets, positions, None)
    loss.backward()
    return loss.detach(), [parameter.grad.clone() for parameter in model.parameters()]


def distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """The largest relative difference of a gradient."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 36, 1000])
def test_R_14_chunks_change_neither_loss_nor_gradient(tied: bool, chunk: int) -> None:
    model = tiny_model(tie_embeddings=tied)
    whole, expected = loss_and_gradients(model, None, torch.float32)
    loss, gradients = loss_and_gradients(model, chunk, torch.float32)
    assert abs(float(loss - whole)) < 1e-4 * float(whole)
    assert distance(gradients, expected) < 1e-5
    model.double()
    whole, expected = loss_and_gradients(model, None, torch.float64)
    loss, gradients = loss_and_gradients(model, chunk, torch.float64)
    assert loss.dtype == torch.float64 and abs(float(loss / whole - 1)) < 1e-13
    assert distance(gradients, expected) < 1e-12


def test_R_14_logits_of_a_big_vocabulary_are_summed_wide_in_bf16() -> None:
    """64k pieces: sums in bf16 would come in steps of 2 nats at this size."""
    model = tiny_model(vocab_size=65536, hidden_size=16, head_size=4, num_layers=1)
    whole, expected = loss_and_gradients(model, None, torch.bfloat16)
    loss, gradients = loss_and_gradients(model, 16, torch.bfloat16)
    assert loss.dtype == torch.float32
    assert abs(float(loss - whole)) < 1e-5 * float(whole)
    assert float(loss) != float(loss.bfloat16())
    assert (
        distance(gradients, expected) < 1e-2
    )  # bf16 itself: products are rounded in another order


def test_a_loss_that_is_weighted_has_its_gradient_weighted() -> None:
    generator = torch.Generator().manual_seed(2)
    hidden, weight = torch.randn(9, 8, generator=generator), torch.randn(30, 8, generator=generator)
    results = []
    for factor in (1.0, 3.0):
        x, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        (ChunkedCrossEntropy.apply(x, w, torch.arange(9), 4) * factor).backward()
        results.append((x.grad, w.grad))
    for one, three in zip(*results, strict=True):
        assert torch.allclose(one * 3, three)


def test_logits_are_cut_only_where_they_are_large() -> None:
    assert logits_chunk(2048, 8192) is None
    assert logits_chunk(MAX_LOGITS_BYTES // 4 // 8192, 8192) is None
    assert logits_chunk(32 * 1024, 32768) == 8192
    assert logits_chunk(100, 10, limit=400) == 10
    assert logits_chunk(7, 1, limit=12) == 3  # 3, 3 and 1


MEMORY_SCRIPT = """
import resource, sys
import torch
from sifirdan.training.losses import ChunkedCrossEntropy
from torch.nn.functional import cross_entropy, linear
vocabulary, tokens, width = 65536, 2048, 32
hidden = torch.randn(tokens, width, requires_grad=True)
head = torch.randn(vocabulary, width, requires_grad=True)
targets = torch.arange(tokens)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + 700_000_000  # the logits alone take 537 million bytes
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
if sys.argv[1] == "whole":
    cross_entropy(linear(hidden, head), targets, reduction="sum").backward()
else:
    ChunkedCrossEntropy.apply(hidden, head, targets, 128).backward()
print("done", float(hidden.grad.norm()) > 0)
"""


@pytest.mark.slow
def test_R_14_a_batch_that_fits_only_in_chunks() -> None:
    def run(way: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MEMORY_SCRIPT, way],
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
        )

    whole, chunked = run("whole"), run("chunked")
    assert whole.returncode != 0 and "allocate memory" in whole.stderr
    assert chunked.stdout == "done True\n", chunked.stderr


@pytest.mark.slow
def test_compiled_chunks_are_right_and_the_same_each_time() -> None:
    if not shutil.which("g++") and not shutil.which("c++"):
        pytest.fail("torch.compile on a CPU needs a C++ compiler")
    model = tiny_model(num_layers=1)
    results = [loss_and_gradients(model, 40, torch.float32, compiled=True) for _ in range(5)]
    assert len({b"".join(g.numpy().tobytes() for g in r[1]) for r in results}) == 1
    loss, expected = loss_and_gradients(model, 40, torch.float32)
    assert abs(float(results[0][0] - loss)) < 1e-4 * float(loss)
    assert distance(results[0][1], expected) < 1e-5


def test_the_default_is_the_loss_over_all_logits() -> None:
    assert loss_function(False, None) is cross_entropy_sum
