"""The command `sifirdan`: talk to your model, continue texts, see how a text is cut into tokens, verify
folders, question the ledger, compare runs.

Thin: the work is elsewhere.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from sifirdan import runs
from sifirdan.errors import ConfigError, DataError, run_command

MODELS = {"chat": Path("models/chat"), "base": Path("models/base")}


def main() -> None:
    """Entry point of the console script."""
    arguments = _parser().parse_args()
    run_command(lambda: arguments.run(arguments))


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


def verify(arguments: argparse.Namespace) -> int:
    """Hash every file of finished folders again and name what differs; of a corpus also prove that
    documents in = documents out + rejects + duplicates."""
    failed = 0
    for path in arguments.paths:
        try:
            manifest = runs.read_manifest(path)
        except DataError as error:
            failed += 1
            print(error, file=sys.stderr)
            continue
        problems = runs.check_files(path, manifest)
        proved: list[str] = []
        if manifest.kind == "corpus" and not problems:
            problems, proved = _check_law(path, manifest)
        failed += bool(problems)
        if not problems:
            proved.insert(0, f"whole ({manifest.kind}, {len(manifest.files)} files)")
        for line in problems or proved:
            print(f"{path}: {line}")
    return int(failed > 0)


def _check_law(corpus: Path, manifest: runs.Manifest) -> tuple[list[str], list[str]]:
    """Where a corpus breaks the conservation law, and a line a source that says how it is kept; the
    raw folder beside it is compared too, if the corpus was made from it."""
    from sifirdan.corpus.card import read_card
    from sifirdan.corpus.conservation import corpus_problems, law_lines

    raw = corpus.absolute().parent / "raw"
    there = (raw / runs.MANIFEST).is_file()
    same = there and runs.read_manifest(raw).sha256 == manifest.inputs.get("raw")
    problems = corpus_problems(corpus, raw if same else None)
    if problems:
        return problems, []
    lines = law_lines(read_card(corpus)["sources"])
    if there and not same:
        lines.append(f"out of date: {raw.name} beside it is of another run; dvc repro clean")
    return [], lines


def ledger(arguments: argparse.Namespace) -> None:
    """Say what is in the corpus, why a document is in or out, where a row of a shard comes from, or
    what a source has touched."""
    from sifirdan.corpus import contents, provenance, shard_rows, withdrawal

    corpus, raw, tokens = Path("data/corpus"), Path("data/raw"), Path("data/tokens")
    found: Any
    if arguments.why:
        found = [provenance.why(corpus, raw, wanted) for wanted in arguments.why]
        lines = [line for one in found for line in (*provenance.why_lines(one), "")][:-1]
    elif arguments.row is not None:
        found = shard_rows.shard_row(arguments.row)
        lines = [*shard_rows.shard_row_lines(found)]
    elif arguments.withdraw is not None:
        found = withdrawal.withdraw(Path(), arguments.withdraw)
        lines = [*withdrawal.withdraw_lines(found)]
    else:
        found = contents.contents(corpus, tokens)
        lines = [*contents.contents_lines(found)]
    print(json.dumps(found, ensure_ascii=False, indent=2) if arguments.json else "\n".join(lines))


def doctor(_: argparse.Namespace) -> int:
    """Say what this machine has, what is missing and how to get it."""
    from sifirdan.doctor import examine

    findings = examine(Path.cwd())
    for finding in findings:
        print(
            f"{'ok   ' if finding.ok else 'MISSING' if finding.needed else 'note '} {finding.text}"
        )
        if finding.todo:
            print(f"      what to do: {finding.todo}")
    return int(any(finding.needed and not finding.ok for finding in findings))


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


def ui(arguments: argparse.Namespace) -> int:
    """Serve the MLflow comparison on 127.0.0.1 until Ctrl-C."""
    from sifirdan import track

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", arguments.port))
        except OSError:
            raise ConfigError(
                f"port {arguments.port} is taken by another program",
                expected="a free port",
                todo=f"make ui PORT={arguments.port + 1}",
            ) from None
    print(f"Open {track.ui_url(arguments.port)} in some seconds.\nCtrl-C ends it.", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = subprocess.Popen(
        track.ui_command(arguments.port),
        env=os.environ | track.ui_environment(),
        start_new_session=True,  # Ctrl-C comes to us alone, and we end the server with its workers
    )
    try:
        return server.wait()
    except KeyboardInterrupt:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        print("\nThe page is closed.")
        return 0


def replay(arguments: argparse.Namespace) -> None:
    """Give the tracking store what a run could not log."""
    from sifirdan import track

    for path in arguments.paths:
        print(f"{path}: {track.replay(path)}")


def _load(arguments: argparse.Namespace):  # type: ignore[no-untyped-def]
    from sifirdan.device import pick_device
    from sifirdan.model.checkpoint import load_model
    from sifirdan.tokenizer import Tokenizer

    folder = MODELS.get(arguments.model, Path(arguments.model))
    if not (folder / "config.json").is_file():
        raise DataError(
            f"{folder}: there is no model",
            expected="'chat', 'base' or a model folder",
            todo="run make first, or correct --model; stand in the project's folder",
        )
    return load_model(folder, pick_device(arguments.device)), Tokenizer.load(folder)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sifirdan", description=" ".join(__doc__.split("\n\n")[0].split())
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
        command = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        command.set_defaults(run=function)
        return command

    for command, model in ((add("chat", chat), "chat"), (add("generate", generate), "base")):
        command.add_argument("--model", default=model, help="chat, base or a model folder")
        command.add_argument(
            "--temperature", type=float, default=0.7 if model == "base" else 0.5, help="0 is greedy"
        )
        command.add_argument(
            "--top-k", type=int, default=0, help="most likely pieces drawn from; 0: all"
        )
        command.add_argument(
            "--top-p", type=float, default=0.9, help="share of probability drawn from"
        )
        command.add_argument(
            "--max-new-tokens", type=int, default=120, help="longest answer, in tokens"
        )
        command.add_argument("--seed", type=int, default=1, help="of the draw")
        command.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
        if model == "chat":
            command.add_argument("--system", default="", help="a system message at the start")
        else:
            command.add_argument("prompt", nargs="?", default="", help="the text to continue")
    tokens_command = add("tokens", tokens)
    tokens_command.add_argument("text", nargs="*", help="the text; without it, standard input")
    tokens_command.add_argument(
        "--model",
        default="tokenizer",
        choices=("tokenizer", "base", "chat"),
        help="whose tokenizer",
    )
    verify_command = add("verify", verify)
    verify_command.add_argument("paths", nargs="+", type=Path, help="folders with a manifest.json")
    ledger_command = add("ledger", ledger)
    question = ledger_command.add_mutually_exclusive_group()
    question.add_argument(
        "--why", metavar="ID", nargs="+", help="ids of documents, their beginnings, or origins"
    )
    question.add_argument("--row", metavar="FILE:ROW", help="a shard and a row, counted from 0")
    question.add_argument("--withdraw", metavar="SOURCE", help="name of a source in params.yaml")
    ledger_command.add_argument("--json", action="store_true", help="for machines")
    add("doctor", doctor)
    add("ui", ui).add_argument("--port", type=int, default=5000)
    add("replay", replay).add_argument("paths", nargs="+", type=Path, help=".track/*.jsonl")
    return parser


if __name__ == "__main__":
    main()
