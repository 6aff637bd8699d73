"""Files and metrics of a run as pages read them: everything that a page can show, in small. The numbers
are made up; for pages alone."""

import copy
import json
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.compare.comparison import NOISE_UNKNOWN, Comparison, MetricRow, RunRecord
from sifirdan.compare.measures import flat

PHENOMENA = {
    "vowel_harmony": 0.95,
    "case_government": 0.71,
    "de_da_apart": 0.52,
    "word_order": 0.60,
}
PROMPTS = ("Bir gün", "Türkiye'nin en büyük")
TRAIN = {
    "seed": 1,
    "tokens": 4096,
    "batch_tokens": 64,
    "optimizer": {"lr_matrices": 0.02},
    "runtime": {"threads": 2},
}


def split(bits: float, text: str) -> dict[str, Any]:
    return {
        "text": text, "bits_per_byte": bits, "low": bits - 0.03, "high": bits + 0.04,
        "token_perplexity": 68.2, "word_perplexity": 1856.2, "character_perplexity": 3.18,
        "documents": 2400, "unscorable": 3, "tokens": 96722, "words": 51234,
        "characters": 348294, "bytes": 381114,
        "sources": {"kenet": bits - 0.01, "ataturk": bits + 0.2},
        "lengths": {"<= 64 tokens": bits + 0.1, "65-128 tokens": bits, "> 128 tokens": bits - 0.1},
        "positions": {"1-8": 8.9, "9-16": 7.2, "17-32": 6.6, "33-64": 6.2},
        "calibration": {"error": 0.021, "accuracy": 0.312, "confidence": 0.297},
    }  # fmt: skip


def evaluation(bits: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "window": 256, "stride": 128, "tokenizer": "63062d7ff35e",
        "val": split(bits, "a1b2c3d4e5f6"), "test": split(bits + 0.02, "0f1e2d3c4b5a"),
        "ood": split(bits + 0.9, "998877665544"),
        "minimal_pairs": {
            "accuracy": 0.753, "standard_error": 0.011,
            "phenomena": {n: {"accuracy": a, "standard_error": 0.04, "pairs": 120} for n, a in PHENOMENA.items()},
        },
        "tasks": {"suffix_cloze": {"items": 200, "accuracy": 0.43, "accuracy_by_bytes": 0.41,
                                   "standard_error": 0.035, "chance": 0.25}},
        "samples": {"distinct_1": 0.61, "distinct_2": 0.93, "repetition": 0.074, "known_word_share": 0.859,
                    "val_known_word_share": 0.937, "stopped_share": 0.95, "longest_copy_chars": 38,
                    "copied_share": 0.0, "temperatures": {"0": {"distinct_1": 0.21}, "0.7": {"distinct_1": 0.55}}},
    }  # fmt: skip
    found["val"] |= {"unigram_bits_per_byte": 2.412, "xz_bits_per_byte": 2.731}
    return found


def questions(own: float) -> dict[str, Any]:
    types = {
        kind: {"questions": 60, "exact_match_share": 0.05, "own_question_share": own}
        for kind in ("definition", "synonym")
    }
    return {
        "text": "0f3a91c2d4e5", "questions": 200, "stopped_share": 1.0, "one_sentence_share": 0.995, "own_question_share": own,
        "exact_match_share": 0.012, "partial_match": 0.21, "blind_partial_match": 0.17, "nats_per_target": 3.898, "types": types,
    }  # fmt: skip


def all_metrics() -> dict[str, dict[str, Any]]:
    """The content of the metrics files."""
    chat = evaluation(2.036) | {
        "questions": {
            "known": questions(0.81),
            "unseen": questions(0.78),
            "handwritten": {"types": {"greeting": {"questions": 4, "own_question_share": 0.75}}},
        },
        "forgetting": {"before": 1.546, "after": 2.036, "rise": 0.49, "above_limit": 1},
    }
    return {
        "clean": {"splits": {"train": {"documents": 74153, "bytes": 11310933}}},
        "train": {"steps": 64, "tokens": 4096, "epochs": 0.77, "parameters": 7407872, "loss": 4.281},
        "finetune": {"steps": 31, "conversations": 15435, "loss": 3.292},
        "evaluate_base": evaluation(1.546),
        "evaluate_chat": chat,
    }  # fmt: skip


def sample_lines(chat: bool) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"prompt": p, "text": f" ığdır ve kâr, {t:g}.", "temperature": t, "stopped": t > 0}
        for t in (0.0, 0.7, 1.0)
        for p in PROMPTS
    ]
    lines += [
        {"prompt": "", "text": f"kelime {n} (isim):\nBir şey olma durumu.", "temperature": 0.8, "stopped": True}
        for n in range(12)
    ]  # fmt: skip
    if chat:
        lines.append({"question": "Merhaba!", "expected": "-", "text": "Merhaba, İyi günler!", "stopped": True})  # fmt: skip
        lines += [
            {"question": f"“söz{n}” ne demek?", "expected": "Söz.", "text": f"Yanıt {n}.", "stopped": True}
            for n in range(30)
        ]  # fmt: skip
    return lines


BINS = [{"tokens": 100, "confidence": n / 10 + 0.05, "accuracy": n / 11} for n in range(10)]
CARD = {
    "sources": {
        name: {
            "license": license, "uses": ["pretraining"], "note": note, "left_out": False,
            "out": {"train": documents}, "chars_out": {"train": chars},
        }
        for name, license, documents, chars, note in (
            ("kenet", "GPL-3.0", 73243, 8061792, "A dictionary."),
            ("ataturk", "public-domain", 364, 2015242, "Speeches of 1906-1938."),
            ("sohbet", "MIT", 0, 0, "For chat alone."),
        )
    },
    "licenses": {
        "GPL-3.0": {"sources": ["kenet"], "train_share": 0.8},
        "public-domain": {"sources": ["ataturk"], "train_share": 0.2},
    },
    "splits": {"train": {"documents": 73607, "chars": 10077034, "bytes": 11000000}},
}  # fmt: skip


def make_files(root: Path, changes: dict[str, Any] | None = None) -> tuple[Path, Path]:
    """reports/ and models/ below `root`, as the stages leave them. `changes` replace parts: "card",
    "samples" (lines)."""
    changes = changes or {}
    reports, models = root / "reports", root / "models"

    def folder(path: Path, kind: str, params: dict[str, Any], inputs: dict[str, runs.Manifest], files: dict[str, str]) -> runs.Manifest:  # fmt: skip
        made: dict[str, Any] = {"inputs": inputs, "params": params, "packages": ("numpy",)}
        with runs.new_folder(path, kind=kind, **made) as output:
            for name, text in files.items():
                runs.write_text(output.path / name, text)
        return runs.read_manifest(path)

    def lines(rows: list[dict[str, Any]]) -> str:
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    raw = folder(root / "data/raw", "raw", {}, {}, {"a": "a"})
    corpus = folder(root / "data/corpus", "corpus", {"min_chars": 20}, {"raw": raw}, {"a": "b"})
    folder(reports / "corpus", "corpus_report", {"min_chars": 20}, {"raw": raw}, {})
    tokenizer = folder(
        models / "tokenizer", "tokenizer", {"vocab_size": 8192}, {"corpus": corpus}, {}
    )
    tokens = folder(
        root / "data/tokens", "tokens", {}, {"corpus": corpus, "tokenizer": tokenizer}, {}
    )
    chat = folder(root / "data/chat", "chat", {}, {"corpus": corpus}, {"c": "c"})
    config = {
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "vocab_size": 8192,
        "max_position_embeddings": 256,
    }
    card = json.dumps(changes.get("card", CARD))
    files = {"config.json": json.dumps(config), "data_card.json": card}
    base = folder(
        models / "base", "model", TRAIN, {"tokens": tokens, "tokenizer": tokenizer}, files
    )
    tuned = folder(
        models / "chat", "model", {"batch_tokens": 48}, {"base": base, "chat": chat}, files
    )
    curve = [{"step": n, "loss": 9 - n / 16} | ({"val_bits_per_byte": 3 - n / 64} if n % 16 == 0 else {}) for n in range(1, 65)]  # fmt: skip
    for stage in ("train", "finetune"):
        folder(reports / stage, "curve", {}, {}, {"curve.jsonl": lines(curve)})
    for name, model in (("base", base), ("chat", tuned)):
        samples = lines(changes.get("samples") or sample_lines(name == "chat"))
        inputs = {"model": model, "corpus": corpus}
        folder(
            reports / "evaluate" / name,
            "evaluation",
            {"stride": 128, "max_forgetting": 0.3},
            inputs,
            {"samples.jsonl": samples, "calibration.json": json.dumps({"val": BINS})},
        )
    return reports, models


NOISE: dict[str, Any] = {
    "params": {"train.tokens": 400000},
    "seeds": [1, 2, 3],
    "sigma": {
        "evaluate_base.val.bits_per_byte": 0.002,
        "evaluate_base.ood.bits_per_byte": 0.012,
        "evaluate_base.minimal_pairs.accuracy": 0.002,
    },
    "mean": {},
}


def reference() -> dict[str, Any]:
    """reference/run.json of a run with half the rate and other tokens: better on val, within noise
    on ood, worse on pairs."""
    metrics = copy.deepcopy(all_metrics())
    metrics["evaluate_base"]["val"]["bits_per_byte"] = 1.612
    metrics["evaluate_base"]["ood"]["bits_per_byte"] -= 0.004
    metrics["evaluate_base"]["minimal_pairs"]["accuracy"] = 0.80
    params = {f"train.{k}": v for k, v in flat(TRAIN)} | {"train.optimizer.lr_matrices": 0.01}
    return {
        "name": "default of July",
        "params": params | {"train.runtime.threads": 64},
        "metrics": metrics,
        "hashes": {"data/tokens": "0" * 64},
    }


def comparison(num_runs: int = 3) -> Comparison:
    """Runs beside each other, with every verdict."""
    names = ("default", "twice the rate", "16384 pieces", "more")[:num_runs]
    records = tuple(
        RunRecord(
            name,
            {"train.batch_tokens": 2048},
            {},
            {
                "train": [
                    {"step": s, "loss": 9 - s / 20 + n / 9, "val_bits_per_byte": 3 - s / 90 + n / 9}
                    for s in range(1, 100, 9)
                ],
                "finetune": [{"step": s, "loss": 4 - s / 90} for s in range(1, 60, 3)],
            },
            {},
            (f"bir {n}: ığdır", f"iki {n}: İstanbul"),
        )
        for n, name in enumerate(names)
    )  # fmt: skip

    def row(name: str, label: str, values: tuple[float | None, ...], verdicts: tuple[str, ...], sigma: float | None, lower: bool = True) -> MetricRow:  # fmt: skip
        return MetricRow(
            name, label, values[:num_runs], lower, sigma, verdicts[: max(0, num_runs - 1)]
        )

    return Comparison(
        records,
        {
            "train.optimizer.lr_matrices": (0.02, 0.04, 0.02, 0.02)[:num_runs],
            "evaluate.prompts": (["Bir gün"], ["Bir gün"], None, None)[:num_runs],
        },
        {"the tokenizer (models/tokenizer)": ("a" * 12, "a" * 12, "b" * 12, None)[:num_runs]},
        (
            row("evaluate_base.val.bits_per_byte", "base model: bits per byte of val",
                (1.546, 1.521, 1.549, 1.6), ("better", "within noise", "worse"), 0.004),
            row("evaluate_base.val.token_perplexity", "base model: token perplexity of val",
                (68.2, 65.9, 131.0, 70.0), (NOISE_UNKNOWN, "not compared", NOISE_UNKNOWN), None),
            row("evaluate_base.minimal_pairs.accuracy", "base model: minimal pairs, right",
                (0.753, 0.753, 0.702, None), ("equal", "worse", "not compared"), 0.011, False),
        ),
        ("default and 16384 pieces have different tokenizers: token perplexity cannot be compared.",),
    )  # fmt: skip
