"""A million random texts through our encoder and through the exported folder: every one comes back,
both give the same ids, and no text gives a control id.

    python -m bench.lossless [--texts 1000000] [--seed 1] [--folder models/tokenizer]

Without --folder a tokenizer is trained on generated text, one for each method. The first difference
is printed and ends the run. The texts are those of sifirdan/evals/hard_texts.py; the suite tries
5,000 of them. What others make of `tokenizer.model` is counted for the first 20,000 texts.
"""

import argparse
import sys
import time
from itertools import islice
from pathlib import Path

import sentencepiece
from transformers import AutoTokenizer

from bench import generated_corpus
from bench.processes import workplace
from sifirdan import chat
from sifirdan.evals.hard_texts import PROBES, hard_texts
from sifirdan.tokenizer import MODEL_FILE, Tokenizer
from sifirdan.tokenizer_files import save_hugging_face
from sifirdan.tokenizer_training import train

BATCH = 5000
TRIED_ELSEWHERE = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.folder:
        check(given.folder, given.texts, given.seed)
        return
    corpus = list(generated_corpus.documents(2_000_000, 1))
    for method in ("bpe", "unigram"):
        with workplace() as folder:
            tokenizer = Tokenizer(train(corpus, 4096, method)[0])
            (folder / MODEL_FILE).write_bytes(tokenizer.proto.SerializeToString())
            save_hugging_face(folder, tokenizer, chat.TEMPLATE)
            check(folder, given.texts, given.seed)


def check(folder: Path, num_texts: int, seed: int) -> None:
    ours, twin = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    texts = hard_texts(seed)
    start, chars, tokens, tried = time.perf_counter(), 0, 0, 0
    while tried < num_texts:
        some = list(islice(texts, min(BATCH, num_texts - tried)))
        theirs = twin(some, split_special_tokens=True)["input_ids"]
        decoded = twin.batch_decode(theirs)
        for text, ids, other, back in zip(
            some, ours.encode_many(some), theirs, decoded, strict=True
        ):
            if ids != other or ours.decode(ids) != text or back != text:
                sys.exit(f"differs: {text!r}\n  ours  {ids}\n  theirs {other}\n  back {back!r}")
            if not ours.control_ids.isdisjoint(ids):
                sys.exit(f"a control id: {text!r} {ids}")
            chars += len(text)
            tokens += len(ids)
        tried += len(some)
    print(
        f"{ours.method}: {tried:,} texts, {chars:,} characters, {tokens:,} tokens: all come back,"
        f" the exported folder agrees, no control id ({time.perf_counter() - start:.0f} s)"
    )
    elsewhere(folder, ours, seed)


def elsewhere(folder: Path, ours: Tokenizer, seed: int) -> None:
    """Texts that SentencePiece itself does not give back from the same model file."""
    plain = sentencepiece.SentencePieceProcessor(model_proto=(folder / MODEL_FILE).read_bytes())
    texts = [*PROBES, *islice(hard_texts(seed), TRIED_ELSEWHERE)]
    lost = [text for text in texts if plain.decode(plain.encode(text)) != text]
    symbol = sum("\u2581" in text for text in lost)
    print(
        f"  tokenizer.model in SentencePiece alone: {len(lost):,} of {len(texts):,} do not come back,"
        f" {symbol:,} of them hold U+2581"
    )
    other = sum(
        plain.encode(text) != ids
        for text, ids in zip(texts, ours.encode_many(texts), strict=True)
        if "\u2581" not in text
    )
    print(f"  and of those without U+2581 {other:,} have other ids than ours")


if __name__ == "__main__":
    main()
