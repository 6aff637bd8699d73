"""Documents shown as examples: for each reason a few that it turned away and a few that it nearly
did, drawn fairly while the corpus streams past. Not for showing them: see `corpus_report`."""

from dataclasses import dataclass, replace
from typing import Literal

SAMPLE_CHARS = 700  # of a text that is shown

Side = Literal["rejected", "kept"]


@dataclass(frozen=True)
class Example:
    """A document as the page shows it. `note` is what the rule saw ("mean word length 14.2");
    `kept` is, for a duplicate, the text of the copy that stayed."""

    id: str
    source: str
    origin: str
    text: str
    note: str = ""
    kept: str | None = None


class Samples:
    """Examples for each reason: documents that it turned away, and documents that it nearly did. Of
    all that a source offers those with the smallest ids stay. Ids are hashes, so this is a fair draw,
    and it does not depend on order or on how the work was divided."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: dict[tuple[str, Side, str], dict[str, Example]] = {}  # by source, by id

    def wants(self, reason: str, side: Side, source: str, id: str) -> bool:
        """Whether offering a document with this id would change anything."""
        found = self._found.get((reason, side, source), {})
        return len(found) < self._limit or (self._limit > 0 and id < max(found))

    def offer(self, reason: str, side: Side, example: Example) -> None:
        """Show this document for a reason, unless there are enough with smaller ids."""
        if not self.wants(reason, side, example.source, example.id):
            return
        found = self._found.setdefault((reason, side, example.source), {})
        cut = example.kept[:SAMPLE_CHARS] if example.kept is not None else None
        found[example.id] = replace(example, text=example.text[:SAMPLE_CHARS], kept=cut)
        if len(found) > self._limit:
            del found[max(found)]

    def complete(self, reason: str, example: Example) -> None:
        """Put more into an example that is shown: the copy that stayed."""
        found = self._found[reason, "rejected", example.source]
        assert example.id in found, example.id
        cut = example.kept[:SAMPLE_CHARS] if example.kept is not None else None
        found[example.id] = replace(example, kept=cut)

    def merge(self, other: "Samples") -> None:
        """Take in what another worker has found."""
        for (reason, side, _), found in other._found.items():
            for example in found.values():
                self.offer(reason, side, example)

    def of(self, reason: str, side: Side) -> list[Example]:
        """The examples of a reason, by id: of every source equally many, where it has them, so that
        a small one is not drowned by a large one."""
        ranked = [
            (place, id, example)
            for (one, other, _), found in self._found.items()
            if (one, other) == (reason, side)
            for place, (id, example) in enumerate(sorted(found.items()))
        ]
        chosen = sorted(ranked, key=lambda entry: entry[:2])[: self._limit]
        return [example for _, _, example in sorted(chosen, key=lambda entry: entry[1])]
