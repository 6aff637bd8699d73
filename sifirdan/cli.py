"""The command `sifirdan`: talk to your model, continue texts, see how a text is cut into tokens, score
models side by side, verify folders, question the ledger, compare runs.

Thin: the work is elsewhere.
"""

import argparse
from pathlib import Path

from sifirdan.commands import comparing, models, project
from sifirdan.errors import run_command


def main() -> None:
    """Entry point of the console script."""
    arguments = _parser().parse_args()
    run_command(lambda: arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sifirdan", description=" ".join(__doc__.split("\n\n")[0].split())
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
        command = commands.add_parser(name, help=function.__doc__, description=function.__doc__)
        command.set_defaults(run=function)
        return command

    for command, model in (
        (add("chat", models.chat), "chat"),
        (add("generate", models.generate), "base"),
    ):
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
    tokens_command = add("tokens", models.tokens)
    tokens_command.add_argument("text", nargs="*", help="the text; without it, standard input")
    tokens_command.add_argument(
        "--model",
        default="tokenizer",
        choices=("tokenizer", "base", "chat"),
        help="whose tokenizer",
    )
    score_command = add("score", models.score)
    score_command.add_argument(
        "models", nargs="+", metavar="MODEL", help="base, chat, folder or name"
    )
    whose = score_command.add_mutually_exclusive_group()
    whose.add_argument(
        "--split", choices=("val", "test", "ood"), help="of data/corpus; val without it"
    )
    whose.add_argument(
        "--text", nargs="+", type=Path, metavar="FILE", help="a document each; of .jsonl each line"
    )
    score_command.add_argument(
        "--window", type=int, help="tokens that a model sees; its context, at most 1024, without it"
    )
    score_command.add_argument(
        "--stride", type=int, help="tokens from window to window; half a window without it"
    )
    score_command.add_argument(
        "--tasks",
        nargs="*",
        metavar="TASK",
        help="multiple choice: names of our tasks, or all (as without any), or .jsonl files of your own;"
        " texts too only with --text or --split",
    )
    score_command.add_argument("--device", default="auto", help="auto, cpu, cuda or mps")
    score_command.add_argument("--json", action="store_true", help="for machines")
    verify_command = add("verify", project.verify)
    verify_command.add_argument("paths", nargs="*", type=Path, help="folders with a manifest.json")
    verify_command.add_argument(
        "--cache", action="store_true", help="DVC's objects that dvc.lock names, too"
    )
    ledger_command = add("ledger", project.ledger)
    question = ledger_command.add_mutually_exclusive_group()
    question.add_argument(
        "--why", metavar="ID", nargs="+", help="ids of documents, their beginnings, or origins"
    )
    question.add_argument("--row", metavar="FILE:ROW", help="a shard and a row, counted from 0")
    question.add_argument("--withdraw", metavar="SOURCE", help="name of a source in params.yaml")
    ledger_command.add_argument("--json", action="store_true", help="for machines")
    compare_command = add("compare", comparing.compare)
    compare_command.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="workspace, reference, a Git revision, a DVC experiment, or an MLflow run: name or id",
    )
    compare_command.add_argument("--json", action="store_true", help="for machines; writes no page")
    compare_command.add_argument("--all", action="store_true", help="print every number")
    compare_command.add_argument(
        "--out", type=Path, default=Path("reports/compare.html"), help="the page"
    )
    reference_command = add("reference", comparing.reference)
    reference_command.add_argument(
        "run_name", nargs="?", default="workspace", metavar="RUN", help="as for compare"
    )
    reference_command.add_argument("--name", help="what the pages call it")
    noise_command = add("noise", comparing.noise)
    noise_command.add_argument("--seeds", type=int, default=3, help="so many runs")
    noise_command.add_argument(
        "--tokens", type=int, help="of each training; default: a fifth of the budget in train"
    )
    noise_command.add_argument("--chat", action="store_true", help="the chat model too")
    sweep_command = add("sweep", comparing.sweep)
    sweep_command.add_argument(
        "settings", nargs="*", metavar="KEY=VALUE,VALUE…",
        help='a setting of train, train_tokenizer or tokenize_corpus; "a=1,2 b=3,4" in quotes: every combination',
    )  # fmt: skip
    sweep_command.add_argument("--seeds", type=int, default=3, help="so many runs of each")
    length = sweep_command.add_mutually_exclusive_group()
    length.add_argument(
        "--minutes", type=float, help="of training, for each run; 2 where nothing is said"
    )
    length.add_argument("--epochs", type=float, help="instead: so much of the text, 1 is all")
    sweep_command.add_argument(
        "--out", type=Path, default=Path("reports/sweep.html"), help="the page; its numbers are in a .json beside it"
    )  # fmt: skip
    pairs_command = add("pairs", models.pairs)
    pairs_command.add_argument("folder", nargs="?", type=Path, help="it is made if need be")
    disk_command = add("disk", project.disk)
    disk_command.add_argument("--json", action="store_true", help="for machines")
    preset_command = add("preset", project.preset)
    preset_command.add_argument("name", nargs="?", help="of a file in presets/model")
    add("doctor", project.doctor)
    add("ui", comparing.ui).add_argument("--port", type=int, default=5000)
    add("empty-bin", comparing.empty_bin)
    add("replay", comparing.replay).add_argument(
        "paths", nargs="+", type=Path, help=".track/*.jsonl"
    )
    return parser


if __name__ == "__main__":
    main()
