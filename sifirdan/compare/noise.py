"""How much a number moves when only the seed changes, and when a difference is more than that.

Pure arithmetic and the file reference/noise.json; the runs that fill it are in `noise_runs.py`.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from sifirdan.compare.measures import find, numbers, order, plain
from sifirdan.json_files import damaged, read_object

REFERENCE_FOLDER = Path("reference")  # kept in Git: what runs are compared with
NOISE_FILE = REFERENCE_FOLDER / "noise.json"

# Two-sided 95 % quantiles of Student's t for 1, 2, 3 … degrees of freedom: NIST/SEMATECH e-Handbook of
# Statistical Methods, 1.3.6.7.2 (the column 0.975).
_T_QUANTILES = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip


def t_quantile(degrees: int) -> float:
    """The factor of a 95 % interval whose standard deviation was estimated with so many degrees of
    freedom. Beyond the table the value of 30 stands, which is at most 5 % too wide."""
    assert degrees >= 1, degrees
    return _T_QUANTILES[min(degrees, len(_T_QUANTILES)) - 1]


def real_difference(sigma: float, num_seeds: int) -> float:
    """From where on two single runs differ by more than their seeds, at 95 %.

    The difference of two independent runs has the standard deviation sqrt(2) sigma, so with a sigma
    that is known exactly the limit is 1.96 sqrt(2) sigma, about 2.8 sigma. From n seeds sigma itself is
    uncertain, with n - 1 degrees of freedom, and Student's t takes the place of 1.96.

    >>> round(real_difference(1.0, 3), 2), round(real_difference(1.0, 31), 2)
    (6.09, 2.89)
    """
    return t_quantile(num_seeds - 1) * math.sqrt(2) * sigma


def summarise(
    params: Mapping[str, Any], by_seed: Mapping[int, Mapping[str, Mapping[str, Any]]]
) -> dict[str, Any]:
    """The content of noise.json from the metrics of each seed. A number that some seed lacks, or that
    is not finite in one, gets no sigma: what the others say would be too good."""
    seeds = sorted(by_seed)
    values = [numbers(by_seed[seed]) for seed in seeds]
    sigma, middle = {}, {}
    for name in sorted({name for one in values for name in one}, key=order):
        measure = find(name)
        found = [one.get(name, math.nan) for one in values]
        if measure and measure.better and all(map(math.isfinite, found)):
            sigma[name], middle[name] = stdev(found), mean(found)
    return {"params": dict(params), "seeds": seeds, "sigma": sigma, "mean": middle}


def load_noise(path: Path = NOISE_FILE) -> dict[str, Any] | None:
    """The content of noise.json; None where there is none."""
    if not path.is_file():
        return None
    todo = (
        "sifirdan noise writes it anew, git checkout reference/noise.json brings back the last one"
    )
    noise = read_object(path, todo=todo)
    seeds = noise.get("seeds")
    sigma, middle, params = (noise.get(key) for key in ("sigma", "mean", "params"))
    if not (
        isinstance(seeds, list)
        and len(seeds) >= 2
        and all(type(one) is int for one in seeds)
        and isinstance(sigma, dict)
        and all(map(_is_sigma, sigma.values()))
        and isinstance(middle, dict)
        and isinstance(params, dict)
        and type(params.get("train.tokens", 1)) is int  # the page says how long the runs were
    ):
        raise damaged(
            str(path),
            "it is not what `sifirdan noise` writes",
            expected="params, at least two seeds, sigma and mean of each metric",
            todo=todo,
        )
    return noise


def _is_sigma(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def noise_lines(noise: Mapping[str, Any], missing: Sequence[str] = ()) -> list[str]:
    """A table of mean ± sigma for people."""
    names = sorted(noise["sigma"], key=order)
    labels = {name: measure.label for name in names if (measure := find(name))}
    width = max(map(len, labels.values()), default=0)
    limit = real_difference(1.0, len(noise["seeds"]))
    lines = [
        f"{label:<{width}}  {plain(noise['mean'][name]):>9} ± {plain(noise['sigma'][name], 2)}"
        for name, label in labels.items()
    ]
    lines += [f"no sigma for {name}: some seed has no finite value" for name in missing]
    lines += [
        "",
        f"{len(noise['seeds'])} seeds: two single runs differ really beyond {limit:.1f} sigma "
        "(Student's t, 95 %). More seeds bring that nearer to 2.8.",
    ]
    return lines


def without_sigma(
    noise: Mapping[str, Any], by_seed: Mapping[int, Mapping[str, Mapping[str, Any]]]
) -> list[str]:
    """The numbers that have a direction but got no sigma."""
    seen = {name for metrics in by_seed.values() for name in numbers(metrics)}
    return sorted(
        name for name in seen - noise["sigma"].keys() if (measure := find(name)) and measure.better
    )
