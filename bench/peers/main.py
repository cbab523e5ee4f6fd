#!/usr/bin/env python3
"""Trains the same shapes with diloco and with PyTorch, in turns on this machine, and prints ratios.

Needs torch in the interpreter that runs it; ./do bench-peers sees to that. Run it while the machine is otherwise idle.
"""

import argparse
import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import cases
import machine
import measure
import report
from programs import Diloco, Failed, Torch

PEAK_SECONDS = 8.0
ROOT = Path(__file__).resolve().parents[2]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    names = " ".join([c.name for c in cases.CASES] + [cases.ADAMW, cases.ISLANDS])
    p = argparse.ArgumentParser(prog="./do bench-peers", description=__doc__, epilog=f"cases: {names}")
    p.add_argument("--cases", default="*", help="names or patterns, with commas between (all)")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--seconds", type=float, default=8, help="of each measurement in a turn; two steps at least (8)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--variants", default="eager,compile", help="of PyTorch: eager, compile, chunked (eager,compile)")
    p.add_argument("--patience", type=float, default=60,
                   help="seconds of a step that are too many: PyTorch is given up for that case (60)")
    p.add_argument("--json", type=Path, metavar="FILE", help="everything that was measured")
    p.add_argument("--markdown", type=Path, metavar="FILE", help="what is printed")
    p.add_argument("--diloco", type=Path, default=ROOT / "build" / "diloco", help=argparse.SUPPRESS)
    p.add_argument("--work", type=Path, default=ROOT / "build-peers",
                   help="for compiled kernels and data (build-peers)")
    return p.parse_args()


def texts() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def save(result: dict[str, Any], args: argparse.Namespace) -> None:
    """After each case: a long run that is interrupted has what it measured."""
    if args.json:
        args.json.write_text(json.dumps(result, indent=2) + "\n")
    if args.markdown:
        args.markdown.write_text(report.markdown(result))


def run(args: argparse.Namespace) -> dict[str, Any]:
    plan = measure.Plan(args.threads, args.turns, args.seconds, args.patience, tuple(args.variants.split(",")))
    chosen = cases.selected(args.cases.split(","))
    diloco, torch = Diloco(args.diloco), Torch(args.threads, args.work / "inductor")
    result: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": machine.describe(),
        "diloco": diloco.run("--version").strip().splitlines(),
        "versions": torch.once("versions"),
        "plan": dataclasses.asdict(plan),
        "peaks": diloco.bench("peaks", args.threads, PEAK_SECONDS)["peaks"],
        "cases": [],
    }
    compared = [case for case in cases.CASES if case.name in chosen]
    if compared:
        say("do both programs compute the same?")
        result["loss_check"] = measure.check_same_model(diloco, torch, args.work / "check", texts())
    for case in compared:
        result["cases"].append(measure.compare(case, diloco, torch, plan, say))
        save(result, args)
    if cases.ADAMW in chosen:
        result["adamw"] = measure.adamw(diloco, plan)
    if cases.ISLANDS in chosen:
        result["islands"] = measure.islands(diloco, plan, say)
    save(result, args)
    return result


def main() -> None:
    args = parse()
    try:
        print(report.markdown(run(args)), end="")
    except KeyboardInterrupt:
        raise SystemExit("bench-peers: stopped; --json and --markdown have the cases that were finished") from None
    except Failed as e:
        raise SystemExit(f"bench-peers: {e}") from e


if __name__ == "__main__":
    main()
