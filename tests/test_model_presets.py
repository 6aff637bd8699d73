"""The presets of model and training: whole, valid on top of params.yaml, as large as they say, and
two steps of each run. Large ones take the steps as a shrunken twin with the same switches."""

import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from test_training import data, run, settings

from sifirdan.config import load_params, read_yaml
from sifirdan.errors import ConfigError
from sifirdan.model.layouts import layout_of
from sifirdan.model.transformer import ModelConfig, Transformer
from sifirdan.presets import lay_over, names, use_preset
from stages import train
from stages.__main__ import check

__all__ = ["data"]  # a fixture
ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = {
    "1m": "llama", "30m": "llama", "124m": "qwen3", "350m": "qwen3", "1b": "qwen3",
    "classic": "gpt2", "gpt2": "gpt2",
}  # fmt: skip
WHOLE = sorted(path.stem for path in (ROOT / "presets").glob("*.yaml"))
SIZES = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_size")


def mostly_slow(names: Iterable[str]) -> list[Any]:
    """A parameter for each, and plain `pytest` runs `classic` only."""
    return [n if n == "classic" else pytest.param(n, marks=pytest.mark.slow) for n in names]


def text_of(name: str) -> str:
    """The params file that the preset makes."""
    if name in WHOLE:
        return (ROOT / f"presets/{name}.yaml").read_text(encoding="utf-8")
    changes = read_yaml(ROOT / f"presets/model/{name}.yaml")
    return lay_over((ROOT / "params.yaml").read_text(encoding="utf-8"), changes)


def params_of(name: str, folder: Path) -> train.Params:
    (folder / "params.yaml").write_text(text_of(name), encoding="utf-8")
    return load_params(folder / "params.yaml", "train", train.Params)


@pytest.mark.parametrize("name", mostly_slow(LAYOUTS))
def test_a_preset_is_valid_and_as_large_as_it_says(tmp_path: Path, name: str) -> None:
    params = params_of(name, tmp_path)
    check(tmp_path / "params.yaml")
    content = read_yaml(tmp_path / "params.yaml")
    assert content["finetune"]["batch_tokens"] % params.context_length == 0
    assert layout_of(params.model) == LAYOUTS[name]
    vocab_size = content["train_tokenizer"]["vocab_size"]
    with torch.device("meta"):
        model = Transformer(ModelConfig(vocab_size, params.context_length, params.model))
    head = text_of_header(name)
    said = re.search(r"([\d.]+) (million|billion) parameters", head)
    assert said, head
    size = float(said[1]) * {"million": 1e6, "billion": 1e9}[said[2]]
    assert model.num_parameters() == pytest.approx(size, rel=0.03)


def text_of_header(name: str) -> str:
    lines = (ROOT / f"presets/model/{name}.yaml").read_text(encoding="utf-8").splitlines()
    return " ".join(line[2:] for line in lines if line.startswith("# "))


def test_every_preset_is_known_here_and_sets_the_same_keys() -> None:
    """So that one after another leaves nothing of the first behind."""
    assert names(ROOT) == sorted(LAYOUTS)
    keys = {name: flat(read_yaml(ROOT / f"presets/model/{name}.yaml")) for name in LAYOUTS}
    for name, found in keys.items():
        assert found == keys["classic"], name


def flat(content: dict[str, Any], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for key, value in content.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}"}
    return found


@pytest.mark.parametrize("name", mostly_slow([*LAYOUTS, *WHOLE]))
def test_two_steps_of_a_twin_with_the_same_switches(data: Any, tmp_path: Path, name: str) -> None:
    params = params_of(name, tmp_path)
    shape = asdict(params.model)
    group = shape["num_heads"] // shape["num_kv_heads"]
    for key in SIZES:
        del shape[key]
    twin = tiny_model(**shape, num_kv_heads=4 // group)
    assert layout_of(twin.config.shape) == layout_of(params.model)
    twin.initialise(torch.Generator().manual_seed(1))
    before = [parameter.clone() for parameter in twin.parameters()]
    setup = replace(settings(2), schedule=params.schedule)
    _, points = run(data, tmp_path / "s", setup=setup, params=params.optimizer, model=twin)
    assert [point["step"] for point in points] == [1, 2]
    assert all(2 < point["loss"] < 10 for point in points)
    assert not torch.equal(before[0], next(twin.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1m", "classic"])
def test_two_steps_at_full_size(data: Any, tmp_path: Path, name: str) -> None:
    params = params_of(name, tmp_path)
    vocab_size = read_yaml(tmp_path / "params.yaml")["train_tokenizer"]["vocab_size"]
    model = Transformer(ModelConfig(vocab_size, params.context_length, params.model))
    model.initialise(torch.Generator().manual_seed(params.seed))
    _, points = run(data, tmp_path / "s", setup=settings(2), params=params.optimizer, model=model)
    assert [point["step"] for point in points] == [1, 2]


def test_only_the_named_lines_change_and_the_old_file_is_kept(tmp_path: Path) -> None:
    before = (
        (ROOT / "params.yaml").read_text(encoding="utf-8").replace("Bir gün", "Benim ilk sözüm")
    )
    (tmp_path / "params.yaml").write_text(before, encoding="utf-8")
    (tmp_path / "presets").symlink_to(ROOT / "presets")
    changed = use_preset(tmp_path, "classic")
    after = (tmp_path / "params.yaml").read_text(encoding="utf-8")
    assert (tmp_path / "params.before.yaml").read_text(encoding="utf-8") == before
    pairs = list(zip(before.splitlines(), after.splitlines(), strict=True))
    assert changed == [new for old, new in pairs if new != old] and len(changed) > 15
    comment = re.compile(r"#.*")
    for old, new in pairs:
        assert comment.findall(new) == comment.findall(old)
        assert old.split(":")[0] == new.split(":")[0]
    assert "    positions: learned        # rotary, learned, sinusoidal or none" in changed
    assert use_preset(tmp_path, "classic") == []
    assert (tmp_path / "params.before.yaml").read_text(encoding="utf-8") == before
    use_preset(tmp_path, "1m")
    assert (tmp_path / "params.before.yaml").read_text(encoding="utf-8") == after
    with pytest.raises(ConfigError, match=r"gpt9(.|\n)*classic"):
        use_preset(tmp_path, "gpt9")


def test_a_key_or_value_that_cannot_be_is_refused() -> None:
    text = "train:\n  seed: 1  # of it\n"
    assert lay_over(text, {"train": {"seed": 123456}}) == "train:\n  seed: 123456 # of it\n"
    assert lay_over(text, {"train": {"seed": None}}) == "train:\n  seed: null # of it\n"
    with pytest.raises(ConfigError, match=r"no key train\.sed"):
        lay_over(text, {"train": {"sed": 2}})
    for value in ([1], "two words", "a: b"):
        with pytest.raises(ConfigError, match=r"train\.seed"):
            lay_over(text, {"train": {"seed": value}})


@pytest.mark.slow
def test_the_command_says_what_it_changed(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    (tmp_path / "presets").symlink_to(ROOT / "presets")
    command = [sys.executable, "-m", "sifirdan.cli", "preset"]
    done = subprocess.run(
        [*command, "1m"], cwd=tmp_path, capture_output=True, encoding="utf-8",
        env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "hidden_size: 128" in done.stdout
    assert "the old params.yaml is params.before.yaml" in done.stdout
