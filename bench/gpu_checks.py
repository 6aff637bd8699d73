"""The parts of bench/gpu.py that ask whether training on the device is right, not how fast it is:
resume, logits, and a small model of characters.
"""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.gpu_scale import Scale, command, fit_settings, make_model, say, train
from bench.random_windows import RandomWindows
from sifirdan.corpus import shards
from sifirdan.corpus.loader import Batches, Stream, Windows
from sifirdan.corpus.records import read_folder
from sifirdan.corpus.shards import Row, Shards
from sifirdan.evals.bits_per_byte import score_documents, total
from sifirdan.generate import Sampling, generate
from sifirdan.model.checkpoint import weights_of
from sifirdan.model.transformer import Transformer

SAVE_EVERY, KILL_AT, RESUME_STEPS = 10, 27, 40  # steps of the part `resume`
TEXT_CHARS = 1_100_000  # as long as nanoGPT's Shakespeare
TEXTS = Path("tests/data")


# Resume


class DeadlyBatches(Batches):
    """Batches of which one is the process's last."""

    def __init__(self, windows: Windows, rows: int, kill_at: int) -> None:
        super().__init__(windows, rows)
        self.kill_at = kill_at

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        if number == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(number)


def resume_child(scale: Scale, folder: Path, kill_at: int) -> None:
    """One process of a run; prints the sha256 of its weights if it comes to the end."""
    torch.use_deterministic_algorithms(True)
    context = min(scale.context_length, 256)
    model = make_model(scale, 2048, context, scale.character_sizes)
    settings = fit_settings(scale, RESUME_STEPS, compiled=False, checkpoint_every_steps=SAVE_EVERY)
    train(model, DeadlyBatches(RandomWindows(2048, context), 8, kill_at), settings, store=folder)
    print(sha256_of_weights(model))


def sha256_of_weights(model: Transformer) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights_of(model).items()):
        digest.update(name.encode() + value.numpy().tobytes())
    return digest.hexdigest()


def resume(scale: Scale, _project: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        whole = _resume_process(scale, Path(place) / "whole")
        killed = _resume_process(scale, Path(place) / "cut", "--kill-at", str(KILL_AT))
        if killed.returncode != -signal.SIGKILL:
            sys.exit(f"the process that should have been killed ended with {killed.returncode}")
        saved = sorted(path.name for path in (Path(place) / "cut").glob("*/step-*"))
        resumed = _resume_process(scale, Path(place) / "cut")
    ends = [process.stdout.strip()[-64:] for process in (whole, resumed)]
    say(f"whole    {ends[0]}")
    say(f"resumed  {ends[1]}   killed as it read batch {KILL_AT}, continued from {saved[-1:]}")
    if not saved or not ends[0] or ends[0] != ends[1]:
        sys.exit("the resumed run is another one")
    say("the same bits")


def _resume_process(scale: Scale, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    child = command(scale, "--part", "resume-child", "--folder", str(folder), *more)
    return subprocess.run(child, stdout=subprocess.PIPE, text=True)


# Logits


@torch.no_grad()
def logits(scale: Scale, _project: Path) -> None:
    context = min(scale.context_length, 256)
    model = make_model(scale, 2048, context, scale.character_sizes).cpu()
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.ndim == 2:  # the starting weights are silent
            parameter.normal_(0, parameter.shape[1] ** -0.5, generator=generator)
    ids = torch.randint(0, 2048, (4, context), generator=generator)
    expected = model(ids)
    model.to(scale.device)
    for dtype, bound in ((torch.float32, 1e-3), (torch.bfloat16, 0.3)):
        found = model(ids.to(scale.device), dtype=dtype).float().cpu()
        difference = float((found - expected).abs().max() / expected.std())
        same = float((found.argmax(-1) == expected.argmax(-1)).float().mean())
        say(
            f"{_name(dtype)} against fp32 on the CPU: largest difference {difference:.1e} of the logits' "
            f"deviation (bound {bound:g}), the same best token at {same:.1%}"
        )
        if not difference <= bound:
            sys.exit("the logits differ")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# Characters


def characters(scale: Scale, project: Path) -> None:
    text, origin = public_domain_text(project)
    alphabet = sorted(set(text))
    ids = {character: number + 1 for number, character in enumerate(alphabet)}  # 0 ends a text
    cut = len(text) * 9 // 10
    model = make_model(scale, len(alphabet) + 1, scale.character_context, scale.character_sizes)
    say(
        f"{origin}: {len(text)} characters, {len(alphabet)} different; "
        f"{model.num_parameters() / 1e6:.1f} M parameters, {scale.character_steps} steps of "
        f"{scale.character_rows} x {scale.character_context}"
    )
    with tempfile.TemporaryDirectory() as folder:
        row = Row([*(ids[character] for character in text[:cut]), 0], "text", "text")
        shards.write(Path(folder) / "part-00000.arrow", [row], vocab_size=len(alphabet) + 1)
        windows = Stream(
            Shards(Path(folder)), context_length=scale.character_context, seed=1,
            sampling="random", eos_id=0,
        )  # fmt: skip
        start = time.perf_counter()
        train(
            model,
            Batches(windows, scale.character_rows),
            fit_settings(scale, scale.character_steps),
        )
        seconds = time.perf_counter() - start
    parts = {"train": text[:cut][: len(text) - cut], "val": text[cut:]}
    for name, part in parts.items():
        document = np.array([ids[character] for character in part], np.uint16)
        score = total(
            score_documents(
                model, [document], [len(part.encode())], window=scale.character_context,
                stride=scale.character_context, eos_id=0,
            )
        )  # fmt: skip
        say(
            f"{name}: {score.nats / score.tokens:.4f} nats a character, "
            f"{score.bits_per_byte:.4f} bits a byte"
        )
    say(f"{seconds:.0f} s, compiling included")
    made = generate(
        model, [[0, *(ids[character] for character in text[cut : cut + 8])]], max_new_tokens=min(120, scale.character_context - 9),
        sampling=Sampling(0.8, 0, 1.0), stop_ids=[], forbidden_ids=[0], seed=1,
    )[0]  # fmt: skip
    written = "".join(alphabet[number - 1] for number in made.ids)
    say(f"it writes: {text[cut : cut + 8] + written!r}")


def public_domain_text(project: Path) -> tuple[str, str]:
    """About a million characters, and where they are from."""
    corpus = project / "data/corpus/train"
    if corpus.is_dir():
        texts, length = [], 0
        for document in read_folder(corpus):
            if document.license == "public-domain" and length < TEXT_CHARS:
                texts.append(document.text)
                length += len(document.text)
        if texts:
            return "\n\n".join(texts)[:TEXT_CHARS], f"public-domain texts of {corpus}"
    files = sorted(path for path in TEXTS.iterdir() if path.suffix in (".txt", ".md"))
    return "\n\n".join(path.read_text(encoding="utf-8") for path in files), f"{TEXTS}"
