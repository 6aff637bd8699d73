"""Documents of the corpus to rows of token shards, on all cores.

A task is one row group of the corpus, so what comes out does not depend on the number of workers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from sifirdan.corpus.parallel import Workers
from sifirdan.corpus.records import part_files, read_text_columns, row_groups
from sifirdan.corpus.shards import batch_of_ids
from sifirdan.errors import DataError
from sifirdan.tokenizer import MODEL_FILE, Tokenizer


@dataclass(frozen=True)
class _RowGroup:
    tokenizer: Path
    file: Path
    number: int


def encode_folder(folder: Path, tokenizer: Path, workers: Workers) -> Iterator[pa.RecordBatch]:
    """The documents of a folder as batches for token shards, in their order: ids, then `</s>`."""
    if not part_files(folder):
        raise DataError(
            f"{folder}: there is no part-*.parquet",
            expected="documents, or a file of none",
            todo="dvc repro clean",
        )
    groups = (_RowGroup(tokenizer, file, number) for file, number in row_groups(folder))
    yield from workers.map(_encode, groups)


def _encode(group: _RowGroup) -> pa.RecordBatch:
    tokenizer = _tokenizer((group.tokenizer / MODEL_FILE).read_bytes())
    documents, sources, texts = read_text_columns(group.file, group.number)
    end = np.array([tokenizer.eos_id], np.uint32)
    ids = [np.append(encoded, end) for encoded in tokenizer.encode_arrays(texts)]
    sizes = [len(text.encode()) for text in texts]
    return batch_of_ids(ids, documents, sources, sizes, vocab_size=tokenizer.vocab_size)


@lru_cache(maxsize=1)
def _tokenizer(model: bytes) -> Tokenizer:
    """One a process, which remembers the words it has seen."""
    return Tokenizer(model)
