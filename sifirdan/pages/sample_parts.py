"""The part of a model's page with what it wrote, unedited."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sifirdan.pages.figures import details, escaped

SHOWN = 9  # free samples before the fold


def samples_section(samples: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Continuations of the fixed prompts at each temperature, then free samples."""
    written = [one for one in samples if "prompt" in one]
    prompts: dict[str, list[Mapping[str, Any]]] = {}
    for one in written:
        if one["prompt"]:
            prompts.setdefault(one["prompt"], []).append(one)
    if prompts:
        yield "<p>Unedited: the same prompts at each temperature (0 always takes the likeliest token).</p>"
    for prompt, texts in prompts.items():
        yield f'<h3 lang="tr">{escaped(prompt)}</h3><div class="samples">{"".join(map(_sample, texts))}</div>'
    free = [_sample(one) for one in written if not one["prompt"]]
    if free:
        yield "<h3>From nothing</h3>"
        yield f'<div class="samples">{"".join(free[:SHOWN])}</div>'
        if free[SHOWN:]:
            rest = f'<div class="samples">{"".join(free[SHOWN:])}</div>'
            yield details(rest, f"{len(free) - SHOWN} more")


def _sample(one: Mapping[str, Any]) -> str:
    said = [f"temperature {one['temperature']:g}"] if "temperature" in one else []
    if "stopped" in one:
        said.append("ended by itself" if one["stopped"] else "cut at the longest length")
    prompt = f"<b>{escaped(one['prompt'])}</b>" if one["prompt"] else ""
    return (
        f'<article><p class="from">{escaped(", ".join(said))}</p>'
        f'<p class="text" lang="tr">{prompt}{escaped(one["text"])}</p></article>'
    )
