"""What the machine can do: device, precision, threads, compiling, memory.

The settings stand in runtime.py. What of them can change bits (threads, micro-batch, compiling) is
recorded in manifests and in the resume state.
"""

import ctypes
import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from sifirdan.errors import ConfigError
from sifirdan.runtime import Runtime

logger = logging.getLogger(__name__)


def prepare(runtime: Runtime) -> torch.device:
    """Set threads and allocator for this process; returns the device to use."""
    if runtime.threads is not None:
        torch.set_num_threads(runtime.threads)
    _keep_big_buffers()
    device = pick_device(runtime.device)
    if runtime.deterministic and device.type == "cuda":
        _be_deterministic()
    return device


def pick_device(wanted: str, setting: str = "runtime.device") -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU. `setting` is what the user would change."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        return torch.device(next(name for name, here in available.items() if here))
    if not available.get(wanted):
        raise ConfigError(
            f"{setting} is {wanted}, which torch does not see here",
            expected="one of "
            + ", ".join(["auto", *(name for name, here in available.items() if here)]),
            todo=f"set {setting} to auto, or install a torch build for it (see README)",
        )
    return torch.device(wanted)


def pick_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The type to compute in. bf16 is taken where the hardware multiplies it (CUDA from compute
    capability 8, CPUs with AVX512-BF16 or AMX); elsewhere it is emulated and slower than fp32."""
    real_bf16 = _has_real_bf16(device)
    if precision == "bf16" and not real_bf16:
        logger.warning(
            "precision: bf16 is asked for, but %s has no fast bf16; taking fp32", device.type
        )
    return torch.bfloat16 if precision != "fp32" and real_bf16 else torch.float32


def should_compile(wanted: str, device: torch.device) -> bool:
    """Whether to use torch.compile: tried on a small function first, so that a machine without a
    working compiler says so in one line and trains eager."""
    if wanted == "off" or (wanted == "auto" and device.type == "mps"):
        return False
    if device.type == "cpu" and not (
        shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    ):
        logger.info("torch.compile: there is no C++ compiler here; training eager (slower)")
        return False
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.cwd() / ".cache" / "inductor"))
    try:
        probe = torch.compile(lambda x: (x * 2 + 1).relu())
        probe(torch.ones(8, device=device))
    except Exception as error:  # whatever the compiler stack raises here, eager works
        logger.info(
            "torch.compile: does not work here (%s); training eager", str(error).splitlines()[0]
        )
        return False
    return True


@contextmanager
def attention_backends(device: torch.device, deterministic: bool) -> Iterator[None]:
    """Choose among torch's fused attentions while open: cuDNN's first where it is the fastest, at
    compute capability 9 (H100, H200); only those with one order of sums where the bits have to be the
    same every time, which cuDNN's and the memory-efficient one have not."""
    if device.type != "cuda":
        yield
        return
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    if deterministic:
        backends.remove(SDPBackend.EFFICIENT_ATTENTION)
    else:
        cudnn_is_fastest = torch.cuda.get_device_capability(device)[0] == 9
        backends.insert(0 if cudnn_is_fastest else len(backends), SDPBackend.CUDNN_ATTENTION)
    with sdpa_kernel(backends, set_priority=True):
        yield


def _be_deterministic() -> None:
    """CUDA's kernels with one order of sums; before the first of them, since cuBLAS reads its
    variable once. Memory is not filled first, which would only cost time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False


def _has_real_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    if device.type == "cpu" and sys.platform == "linux":
        try:
            flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        except OSError:
            return False
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return False


def _keep_big_buffers() -> None:
    """Tell glibc not to hand big buffers back after each step: they cost thousands of page faults."""
    if platform.libc_ver()[0] != "glibc":
        return
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, (1 << 31) - 1)
