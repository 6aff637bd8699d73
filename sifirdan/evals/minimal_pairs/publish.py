"""The pairs as a data set for others: pairs.jsonl and a card in the Hub's form. The same bytes each time.
Not for results of models: those belong to a model's card."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sifirdan import runs
from sifirdan.evals.minimal_pairs.baselines import count, length_accuracy, unigram_accuracy
from sifirdan.evals.minimal_pairs.pairs import PHENOMENA, SEED, Pair, all_pairs

PAIRS_FILE = "pairs.jsonl"
CARD_FILE = "README.md"

_HEADER = """---
license: apache-2.0
language:
- tr
pretty_name: Turkish minimal pairs
tags:
- minimal-pairs
- linguistic-acceptability
- evaluation
size_categories:
- 1K<n<10K
configs:
- config_name: default
  data_files:
  - split: test
    path: pairs.jsonl
---
"""

_FIELDS = """## Fields of `pairs.jsonl`

| field | meaning |
| --- | --- |
| `id` | the phenomenon and a number |
| `phenomenon`, `rule` | what is tested, and which case of it |
| `good`, `bad` | two sentences, right and wrong in standard written Turkish |
| `start`, `good_end`, `bad_end` | the place where they differ: `good[start:good_end]` and `bad[start:bad_end]`, in characters; everything else is the same |
| `stem` | the word that is varied; where errors are clustered, this is the cluster |
| `nonce` | whether that stem is invented, so that no text can have taught the answer by heart |
"""

_MADE = """## How it was made

By rules, from a lexicon that was written by hand for it: no sentence comes from a text or from a model.
The generator is part of the project sifirdan (`sifirdan/evals/minimal_pairs/`), the seed is {seed}. A right
form is built by the spelling rules of Turkish, the wrong one makes one choice the other way. Sources of
the rules: A. Göksel & C. Kerslake, *Turkish: A Comprehensive Grammar*, Routledge 2005; the spelling guide of
the Turkish Language Association (TDK, *Yazım Kılavuzu*). The form of the task is that of BLiMP (Warstadt et
al. 2020).

Score each sentence whole by its summed log-likelihood; a pair is right where `good` is more likely, and a tie
counts half.
"""

_WEAKNESSES = """## Known weaknesses

- Sentences are short and built from few frames; their meaning is sometimes odd, though never wrong in form.
- For phenomena inside a word a real word is known to anybody who has seen it, and its wrong form is not: there
  the frequency of words and of tokens helps, more or less by tokenizer. `nonce` pairs are free of the first.
- Standard written Turkish is what is asked for. People write some of the wrong forms every day (`de`, `ki` and
  `mi` joined or apart, missing apostrophes, a negated verb behind *ne … ne*).
- Instrumental and locative government is left out: as an adjunct nearly every noun can stand in these cases,
  so no wrong sentence would be certain. Softening has no invented stems: of those one cannot know.
- The rules were read by their authors only; no group of speakers has judged the pairs.
"""


def write_pairs(folder: Path, measured: Mapping[str, Mapping[str, float]] | None = None) -> None:
    """Write pairs.jsonl and README.md. `measured` adds baselines that need a corpus or a tokenizer to
    the card: by the name of the column, accuracy by phenomenon."""
    runs.write_text(Path(folder) / PAIRS_FILE, pairs_text())
    runs.write_text(Path(folder) / CARD_FILE, card_text(measured or {}))


def pairs_text() -> str:
    """The pairs as JSON lines."""
    return "".join(json.dumps(asdict(pair), ensure_ascii=False) + "\n" for pair in all_pairs())


def card_text(measured: Mapping[str, Mapping[str, float]]) -> str:
    """The data set's card, in Markdown."""
    pairs = all_pairs()
    lines = [
        "# Turkish minimal pairs",
        "",
        f"{len(pairs):,} pairs of sentences in {len(PHENOMENA)} phenomena of Turkish. The two members of a pair"
        " differ in one place; one is right, the other is not. A language model that knows the rule finds the"
        " right one more likely. Guessing gives 50 %. Inside a word more than that can come from frequencies alone,"
        " without the rule: there, read a figure against the baselines below.",
        "",
        *phenomena_table(pairs),
        "",
        _FIELDS,
        _MADE.format(seed=SEED),
        *baselines_section(pairs, measured),
        "",
        _WEAKNESSES,
        "Licence: Apache-2.0.",
    ]
    return _HEADER + "\n" + "\n".join(lines) + "\n"


def phenomena_table(pairs: tuple[Pair, ...]) -> list[str]:
    """A line a phenomenon, with its counts and an example."""
    lines = [
        "| phenomenon | pairs | stems | with invented stem | example: right / wrong |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in PHENOMENA:
        some = [pair for pair in pairs if pair.phenomenon == name]
        stems, invented = len({pair.stem for pair in some}), sum(pair.nonce for pair in some)
        example = f"{some[0].good} / {marked_bad(some[0])}"
        lines.append(f"| {name} | {len(some)} | {stems} | {invented} | {example} |")
    return lines


def marked_bad(pair: Pair) -> str:
    """The wrong member's place alone, with the star of grammars."""
    return "*" + pair.bad[pair.start : pair.bad_end]


def baselines_section(
    pairs: tuple[Pair, ...], measured: Mapping[str, Mapping[str, float]]
) -> list[str]:
    """The table of what can be known without Turkish."""
    characters = count((text for pair in pairs for text in (pair.good, pair.bad)), str)
    columns = {
        "characters": unigram_accuracy(pairs, characters, str),
        "length": length_accuracy(pairs),
        **measured,
    }
    return [
        "## Baselines",
        "",
        "Accuracy in percent of choosing the member with the more frequent characters (words, tokens), or the"
        " shorter one. Each writing of the place is right as often as it is wrong, so characters and length"
        " say nothing. Frequencies of words and tokens depend on a corpus and a tokenizer, of which this set knows"
        " none; where a column of them stands here, it was measured on those of the run that wrote this card.",
        "",
        f"| phenomenon | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
        *(
            f"| {name} | "
            + " | ".join(f"{100 * column[name]:.1f}" for column in columns.values())
            + " |"
            for name in PHENOMENA
        ),
    ]
