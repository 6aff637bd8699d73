"""Short texts of each kind that a Turkish tokenizer should be looked at with: capitals, text typed
without Turkish letters, apostrophe suffixes, numbers, code, emoji."""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources

from sifirdan.baselines.contestants import Contestant
from sifirdan.evals.tokenizer_measures import cuts
from sifirdan.text import upper_tr

_ASCII = str.maketrans("çğıöşüâîûÇĞİÖŞÜ", "cgiosuaiuCGIOSU")


@cache
def probes() -> dict[str, list[str]]:
    """The texts of each kind; `capitals` and `ascii` are those of `plain`, written otherwise."""
    path = resources.files("sifirdan.evals").joinpath("tokenizer_probes.json")
    listed = json.loads(path.read_text("utf-8"))
    del listed["about"]
    plain = listed.pop("plain")
    return {
        "plain": plain,
        "capitals": [upper_tr(text) for text in plain],
        "ascii": [text.translate(_ASCII) for text in plain],
        **listed,
    }


def tokens_of(contestant: Contestant, texts: Sequence[str]) -> int:
    """How many tokens some texts need."""
    return sum(map(len, contestant.encode_many(list(texts))))


def cut_at_apostrophe_share(contestant: Contestant, words: Sequence[str]) -> float:
    """Of words with an apostrophe suffix the share that comes apart right before or behind the
    apostrophe, so that name and suffix are tokens of their own."""
    found = cuts(contestant, words)
    places = [max(word.find("'"), word.find("’")) for word in words]
    apart = sum(bool(cut & {place, place + 1}) for cut, place in zip(found, places, strict=True))
    return apart / max(1, len(words))
