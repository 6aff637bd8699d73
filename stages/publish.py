"""Push a finished folder to the Hugging Face Hub: `python -m stages.publish base`, `… chat` or
`… tokenizer`; with `--dry-run` only show what would go.

Reads models/X. Writes reports/publish/X/receipt.json: the repository, the revision to load by and
what was sent, or that nothing was; and the metrics. Costs nothing where `publish` names no
repository, which is the default; else the time of the upload, and it needs the network and a token.
"""

import logging
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sifirdan import runs, track
from sifirdan.config import PARAMS_FILE, load_params
from sifirdan.errors import ConfigError, DataError, require, run_command
from sifirdan.export import hub
from sifirdan.export.hub_files import File, check_files, left_out, list_files

MADE_BY = {"tokenizer": "train_tokenizer", "base": "train", "chat": "finetune"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Params:
    """See params.yaml for each key."""

    tokenizer: str | None
    base: str | None
    chat: str | None
    private: bool

    def __post_init__(self) -> None:
        named = {name: value for name in MADE_BY if (value := getattr(self, name)) is not None}
        for name, value in named.items():
            require(hub.is_repository(value), f"publish.{name}", value, "owner/name, as on the Hub")
        for name, value in named.items():
            others = [other for other in named if other != name and _same(named[other], value)]
            require(
                not others, f"publish.{name}", value,
                f"a repository of its own: publish.{''.join(others[:1])} names it, too",
            )  # fmt: skip

    def repository(self, name: str) -> str | None:
        return {"tokenizer": self.tokenizer, "base": self.base, "chat": self.chat}[name]


def _same(one: str, other: str) -> bool:
    """Whether two names are of one repository: the Hub does not tell case apart."""
    return re.fullmatch(re.escape(one), other, re.IGNORECASE) is not None


def publish(name: str, folder: Path, out: Path, params: Params) -> dict[str, Any]:
    """Push `folder`, if a repository is named for it, and write the receipt; returns the metrics."""
    manifest, files = _open(name, folder)
    repository = params.repository(name)
    receipt: dict[str, Any]
    if repository is None:
        receipt = {"pushed": False, "why": f"no repository named: publish.{name} is null"}
        _log.info("publish: nothing sent, publish.%s names no repository", name)
    else:
        shutil.rmtree(
            out, ignore_errors=True
        )  # DVC keeps it; if this push fails, it is not true any more
        check_files(folder, files, made_by=MADE_BY[name])
        message = f"sifirdan: models/{name}, manifest {manifest.sha256[:12]}"
        done = hub.push(hub.connect(), repository, files, private=params.private, message=message)
        receipt = {"pushed": True, **asdict(done)}
        counts = {part: len(names) for part, names in receipt["files"].items()}
        _log.info("publish: %s %s", done.url, " ".join(f"{k}={n}" for k, n in counts.items()))
    made = {"repository": repository, "private": params.private}
    with runs.new_folder(out, kind="receipt", inputs={name: manifest}, params=made) as output:
        runs.write_json(output.path / "receipt.json", receipt)
    return {"files": len(files), "bytes": sum(file.num_bytes for file in files)}


def dry_run(name: str, folder: Path, params: Params) -> None:
    """Print what would go and what would stay, then check it; neither network nor token is needed."""
    _, files = _open(name, folder)
    place = params.repository(name) or f"none named; set publish.{name}"
    print(f"repository: {place} ({'private' if params.private else 'public'})")
    for file in files:
        print(f"{file.num_bytes:>15,}  {file.name}")
    print(f"{sum(file.num_bytes for file in files):>15,}  bytes in {len(files)} files")
    print("stays here:", ", ".join(left_out(folder, files)) or "nothing")
    check_files(folder, files, made_by=MADE_BY[name])
    print("checked; nothing was sent")


def _open(name: str, folder: Path) -> tuple[runs.Manifest, list[File]]:
    manifest = runs.read_manifest(folder, made_by=MADE_BY[name])
    kind = "tokenizer" if name == "tokenizer" else "model"
    if manifest.kind != kind:
        raise DataError(f"{folder}: is a '{manifest.kind}' folder", expected=f"a '{kind}' folder")
    return manifest, list_files(folder, manifest)


def main() -> None:
    names = [argument for argument in sys.argv[1:] if argument != "--dry-run"]
    if len(names) != 1 or names[0] not in MADE_BY:
        raise ConfigError(
            f"publish was called with {sys.argv[1:]}",
            expected="'tokenizer', 'base' or 'chat', and perhaps --dry-run",
        )
    (name,) = names
    params = load_params(PARAMS_FILE, "publish", Params)
    folder, out = Path("models") / name, Path("reports/publish") / name
    if "--dry-run" in sys.argv:
        dry_run(name, folder, params)
        return
    made = {"repository": params.repository(name), "private": params.private}
    with track.stage(
        f"publish_{name}", params=made, inputs={name: folder}, outputs={"receipt": out}
    ) as run:
        metrics = publish(name, folder, out, params)
        run.log_artifact(out / "receipt.json")
        run.finish(metrics, Path(f"metrics/publish_{name}.json"))


if __name__ == "__main__":
    run_command(main)
