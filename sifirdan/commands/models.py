"""Commands about models and tokenizers: talk to one, continue texts, score, show tokens and minimal pairs."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError, SifirdanError

MODELS = {"chat": Path("models/chat"), "base": Path("models/base")}


def chat(arguments: argparse.Namespace) -> None:
    """Talk to a model turn by turn; an empty line or Ctrl-D ends, /sil forgets the talk."""
    from sifirdan.chat import Message, fit_prompt
    from sifirdan.evals.answers import stop_rules
    from sifirdan.generate import Sampling, steps
    from sifirdan.tokenizer import StreamDecoder

    model, tokenizer = _load(arguments)
    sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
    system: list[Message] = (
        [{"role": "system", "content": arguments.system}] if arguments.system else []
    )
    messages = list(system)
    answer_room = min(arguments.max_new_tokens, model.config.context_length // 2)
    seed = arguments.seed
    print("Yazın ve Enter'a basın. /sil konuşmayı siler, boş satır veya Ctrl-D bitirir.")
    while True:
        try:
            said = input("> ").encode("utf-8", "replace").decode().strip()
        except UnicodeDecodeError:
            print("(bu satır UTF-8 değil; uçbiriminizin dil ayarına bakın)")
            continue
        except EOFError:
            print()
            return
        if not said:
            return
        if said == "/sil":
            messages = list(system)
            print("(konuşma silindi)")
            continue
        asked: list[Message] = [*messages, {"role": "user", "content": said}]
        room = model.config.context_length - answer_room
        try:
            prompt, dropped = fit_prompt(tokenizer, asked, room)
        except DataError as error:
            print(f"(bu ileti çok uzun, kısaltın: {str(error).splitlines()[0]})")
            continue
        if dropped:
            print(f"(konuşma uzadı: en eski {dropped} ileti unutuldu)")
        decoder = StreamDecoder(tokenizer)
        parts = []
        for fresh in steps(
            model, [prompt], max_new_tokens=answer_room, sampling=sampling, seed=seed,
            **stop_rules(tokenizer),
        ):  # fmt: skip
            parts.append(decoder.push(fresh[0]) if fresh[0] is not None else "")
            print(parts[-1], end="", flush=True)
        parts.append(decoder.flush())
        print(parts[-1], flush=True)
        seed += 1
        reply = "".join(parts)
        messages = [*asked, {"role": "assistant", "content": reply}] if reply.strip() else messages


def generate(arguments: argparse.Namespace) -> None:
    """Continue a text (or begin one from nothing) and print it."""
    from sifirdan.generate import Sampling, steps
    from sifirdan.tokenizer import StreamDecoder

    model, tokenizer = _load(arguments)
    prompt = [tokenizer.eos_id, *tokenizer.encode(arguments.prompt)]
    room = model.config.context_length - len(prompt)
    if room < 1:
        raise DataError(
            f"the prompt has {len(prompt)} tokens",
            expected=f"fewer than {model.config.context_length}, the model's context",
            todo="shorten it",
        )
    decoder = StreamDecoder(tokenizer)
    print(arguments.prompt, end="", flush=True)
    for fresh in steps(
        model, [prompt], max_new_tokens=min(arguments.max_new_tokens, room),
        sampling=Sampling(arguments.temperature, arguments.top_k, arguments.top_p),
        stop_ids=[tokenizer.eos_id], seed=arguments.seed,
        forbidden_ids=sorted(tokenizer.control_ids - {tokenizer.eos_id}),
    ):  # fmt: skip
        print(decoder.push(fresh[0]) if fresh[0] is not None else "", end="", flush=True)
    print(decoder.flush())


def score(arguments: argparse.Namespace) -> None:
    """Score models side by side on the same texts: bits per byte and perplexities, and with --tasks
    multiple choice. A model is base or chat (models/base and models/chat are Hugging Face folders), any
    other folder of that kind, or a name on the Hugging Face Hub."""
    from sifirdan.baselines.language_models import load_language_model
    from sifirdan.device import pick_device
    from sifirdan.evals import side_by_side

    tasks = {} if arguments.tasks is None else side_by_side.read_tasks(arguments.tasks)
    texts = _texts_to_score(arguments)
    device = pick_device(arguments.device, "--device")
    rows, results = [], []
    refused: list[SifirdanError] = []  # what one model cannot do takes nothing from the others
    for name in arguments.models:
        with _kept(refused):
            folder = MODELS.get(name)
            if folder and not folder.is_dir():
                raise _no_model(folder)
            model = load_language_model(str(folder or name), device)
            window = side_by_side.window_of(model, arguments.window)
            if texts is not None:
                with _kept(refused):
                    rows.append(
                        side_by_side.score_texts(
                            model, texts, window=window, stride=arguments.stride
                        )
                    )
            for task, items in tasks.items():
                with _kept(refused):
                    found = side_by_side.score_task(model, task, items, window=window)
                    results.append((model.name, task, found))
    said = list(dict.fromkeys(map(str, refused)))  # a wrong option is refused for each model
    if (rows or results) and arguments.json:
        content = side_by_side.for_machines(rows, results, said)
        print(json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False))
    elif rows or results:
        shown = [side_by_side.table(rows)] if rows else []
        shown += [side_by_side.task_table(results)] if results else []
        print("\n\n".join("\n".join(lines) for lines in shown))
    if refused:
        raise refused[0] if len(said) == 1 else DataError("\n\n".join(said))


@contextlib.contextmanager
def _kept(refused: list[SifirdanError]) -> Iterator[None]:
    try:
        yield
    except SifirdanError as error:
        refused.append(error)


def _texts_to_score(arguments: argparse.Namespace) -> list[str] | None:
    """None where tasks alone are wanted."""
    from sifirdan.corpus.records import read_texts
    from sifirdan.evals.side_by_side import read_text_files

    if arguments.text:
        return read_text_files(arguments.text)
    if arguments.tasks is not None and arguments.split is None:
        return None
    if arguments.split == "test":
        raise ConfigError(
            "--split is test: it is scored once, by the stage evaluate, so that no choice is made by it",
            expected="val or ood, or files of your own with --text",
            todo="compare on val; the figures of test stand in metrics/evaluate_base.json",
        )
    corpus = Path("data/corpus")
    runs.open_folder(corpus, "corpus", made_by="clean")
    return [text for _, _, text in read_texts(corpus / (arguments.split or "val"))]


def tokens(arguments: argparse.Namespace) -> None:
    """Show the tokens of a text, each with its id; a space is shown as ␣, a line end as ⏎, a byte as <0xC5>."""
    from sifirdan.tokenizer import Tokenizer, plain

    try:
        text = " ".join(arguments.text) or sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"standard input is not UTF-8: byte 0x{error.object[error.start]:02X} at {error.start}",
            expected="text in UTF-8",
            todo="older Turkish files: iconv -f windows-1254 -t utf-8",
        ) from None
    tokenizer = Tokenizer.load(Path("models") / arguments.model)
    ids = tokenizer.encode(text)
    for id in ids:
        piece = tokenizer.proto.pieces[id].piece
        shown = "⏎" if piece == "<0x0A>" else plain(piece).replace(" ", "␣")
        print(f"{id:>7}  {shown}")
    num_bytes = len(text.encode())
    print(
        f"{len(ids)} tokens, {num_bytes} bytes, {num_bytes / max(1, len(ids)):.2f} bytes per token"
    )


def pairs(arguments: argparse.Namespace) -> None:
    """Write the Turkish minimal pairs and their card into a folder; without one, show some of them."""
    from sifirdan.evals.minimal_pairs.pairs import PHENOMENA, all_pairs
    from sifirdan.evals.minimal_pairs.publish import marked_bad, write_pairs

    if arguments.folder is not None:
        try:
            write_pairs(arguments.folder)
        except OSError as error:
            raise ConfigError(
                f"{arguments.folder}: the pairs cannot be written there ({error.strerror})",
                expected="a folder, there or to be made",
                todo="name another folder, or mend its rights",
            ) from None
        print(f"{arguments.folder}: {len(all_pairs())} pairs")
        return
    for name in PHENOMENA:
        some = [pair for pair in all_pairs() if pair.phenomenon == name]
        stems, invented = len({pair.stem for pair in some}), sum(pair.nonce for pair in some)
        print(f"{name}: {len(some)} pairs, {stems} stems, {invented} pairs with an invented one")
        for pair in (some[0], some[-1]):
            print(f"  {pair.good}  {marked_bad(pair)}")


def _load(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    from sifirdan.device import pick_device
    from sifirdan.model.checkpoint import load_model
    from sifirdan.tokenizer import Tokenizer

    folder = MODELS.get(arguments.model, Path(arguments.model))
    if not (folder / "config.json").is_file():
        raise _no_model(folder)
    return load_model(folder, pick_device(arguments.device, "--device")), Tokenizer.load(folder)


def _no_model(folder: Path) -> DataError:
    return DataError(
        f"{folder}: there is no model",
        expected="'chat', 'base' or a model folder",
        todo="run make first, or correct the name; stand in the project's folder",
    )
