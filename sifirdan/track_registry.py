"""Models as versions in MLflow's registry: what is copied there, and which version is `best`.

A version is a copy of the model folder among the artifacts of the run that measured it, so that it
loads also when `models/` holds another. Everything follows from the tags of the versions alone: the
same events in any order, once or twice, end in the same registry. Not for opening a store.
"""

import fnmatch
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sifirdan import runs, track_record

FOLDER = "model"  # among the run's artifacts
BEST = "best"  # `latest` is MLflow's own word for the newest version
# What transformers and `sifirdan chat --model` read, with the page that says what it is.
FILES = (
    "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model*.safetensors",
    "model.safetensors.index.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
)  # fmt: skip
_PAGE = 1000  # versions a request
# Tags of a version
_MANIFEST, _SCORE, _TEXT, _WHEN = "manifest", "val.bits_per_byte", "val.text", "measured"


def register(client: Any, run_id: str, event: Mapping[str, Any]) -> None:
    """Store the model of an event, unless its manifest is there, and point `best` at the lowest
    bits per byte among the versions measured on the validation text that was used last."""
    name = event["name"]
    tags = {
        _MANIFEST: event["manifest"],
        _SCORE: repr(event["bits_per_byte"]),
        _TEXT: event["text"],
        _WHEN: str(event["time"]),
        "git.commit": event["commit"],
    }
    tags = {key: value for key, value in tags.items() if value}
    if not _same(client, event) and Path(event["path"]).is_dir():
        _copy(client, run_id, Path(event["path"]), event["manifest"])
    lock = track_record.journal_folder() / "registry.lock"
    with runs.lock(lock, doing="registering a model"):  # two processes may bring the same model
        same = _same(client, event)
        if not same and any(file.path == FOLDER for file in client.list_artifacts(run_id)):
            if not client.search_registered_models(f"name = '{name}'"):
                client.create_registered_model(name)
            source = f"{client.get_run(run_id).info.artifact_uri}/{FOLDER}"
            client.create_model_version(
                name,
                source,
                run_id,
                tags=tags,
                description=_measured(tags),
                await_creation_for=None,
            )
        elif same and int(same[0].tags[_WHEN]) < event["time"]:  # measured once more
            for key in (_SCORE, _TEXT, _WHEN):
                client.set_model_version_tag(name, same[0].version, key, tags[key])
            client.update_model_version(name, same[0].version, _measured(tags))
        _choose_best(client, name)


def _same(client: Any, event: Mapping[str, Any]) -> list[Any]:
    """The version that is this model."""
    return [
        version
        for version in _versions(client, f"name = '{event['name']}'")
        if version.tags.get(_MANIFEST) == event["manifest"] and _is_whole(client, version)
    ]


def _is_whole(client: Any, version: Any) -> bool:
    """Whether the copy that the version names is still there: `mlflow gc` takes it with its run."""
    try:
        return any(file.path == FOLDER for file in client.list_artifacts(version.run_id))
    except Exception as error:
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise


def held_runs(client: Any) -> set[str]:
    """The runs whose artifacts are the versions of some registered model."""
    return {version.run_id for version in _versions(client, "")}


def _copy(client: Any, run_id: str, folder: Path, manifest: str) -> None:
    digest = track_record.folder_hash(folder)
    if digest != manifest:  # a journal is replayed when another model lies there
        raise ValueError(f"{folder} is another model now: {digest[:12]}, not {manifest[:12]}")
    for file in sorted(folder.iterdir()):
        if any(fnmatch.fnmatch(file.name, pattern) for pattern in FILES):
            client.log_artifact(run_id, str(file), FOLDER)


def _choose_best(client: Any, name: str) -> None:
    measured = [
        version
        for version in _versions(client, f"name = '{name}'")
        if math.isfinite(float(version.tags.get(_SCORE, "nan"))) and _TEXT in version.tags
        if _is_whole(client, version)
    ]
    if not measured:
        return
    newest = max(measured, key=lambda version: (int(version.tags[_WHEN]), int(version.version)))
    same_text = [one for one in measured if one.tags[_TEXT] == newest.tags[_TEXT]]
    best = min(same_text, key=lambda one: (float(one.tags[_SCORE]), int(one.version)))
    before = client.get_registered_model(name).aliases.get(BEST)
    if str(before) == str(best.version):  # a number or a text, by the kind of store
        return
    client.set_registered_model_alias(name, BEST, best.version)
    former = [version for version in measured if str(version.version) == str(before)]
    client.update_model_version(
        name, best.version, f"{_measured(best.tags)} {_why(best, former)}".strip()
    )


def _measured(tags: Mapping[str, str]) -> str:
    return f"{float(tags[_SCORE]):.4f} bits per byte on validation text {tags[_TEXT]}."


def _why(best: Any, former: Sequence[Any]) -> str:
    """Why `best` left the version it was on."""
    if not former:
        return ""
    version, tags = former[0].version, former[0].tags
    if tags[_TEXT] != best.tags[_TEXT]:
        return (
            f"`{BEST}` moved here from version {version} because the validation text is another: "
            f"{tags[_TEXT]} there. Numbers on different text do not compare."
        )
    return f"`{BEST}` moved here from version {version}, which has {float(tags[_SCORE]):.4f}."


def _versions(client: Any, query: str) -> list[Any]:
    found, token = [], ""
    while True:
        page = client.search_model_versions(query, max_results=_PAGE, page_token=token or None)
        found += page
        token = page.token
        if not token:
            return found
