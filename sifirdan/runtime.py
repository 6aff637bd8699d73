"""The section `runtime` of params.yaml: about the machine only, no DVC parameter. Without torch, so
that stages that only read text start quickly."""

from dataclasses import dataclass
from typing import Literal

from sifirdan.errors import require

Precision = Literal["auto", "fp32", "bf16"]


@dataclass(frozen=True)
class Runtime:
    """See params.yaml for each key."""

    device: Literal["auto", "cpu", "cuda", "mps"]
    threads: int | None
    loader_workers: int
    micro_batch: int | None
    compile: Literal["auto", "on", "off"]
    gradient_checkpointing: bool
    deterministic: bool
    checkpoint_every_steps: int
    parallel: Literal["ddp", "fsdp"]
    corpus_workers: int | None
    register_models: bool

    def __post_init__(self) -> None:
        require(
            self.threads is None or self.threads >= 1,
            "runtime.threads",
            self.threads,
            "1 or more, or null",
        )
        require(
            self.loader_workers >= 0, "runtime.loader_workers", self.loader_workers, "0 or more"
        )
        require(
            self.micro_batch is None or self.micro_batch >= 1,
            "runtime.micro_batch", self.micro_batch, "1 or more sequences, or null",
        )  # fmt: skip
        require(
            self.checkpoint_every_steps >= 1,
            "runtime.checkpoint_every_steps", self.checkpoint_every_steps, "1 or more",
        )  # fmt: skip
        require(
            self.corpus_workers is None or self.corpus_workers >= 1,
            "runtime.corpus_workers", self.corpus_workers, "1 or more, or null",
        )  # fmt: skip
