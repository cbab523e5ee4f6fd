"""Measurements in turns: machines change their speed while one looks, so what is compared runs alternately."""

import json
import shutil
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import ADAMW_CASE, ISLANDS_CASE, Case
from programs import Diloco, Failed, TooSlow, Torch, TorchWorker

Say = Callable[[str], None]
COMPILE_SECONDS = 600  # torch.compile may take so long


@dataclass(frozen=True)
class Plan:
    threads: int
    turns: int
    seconds: float   # of each measurement in a turn
    patience: float  # seconds of one step at which a variant is given up
    variants: tuple[str, ...]


class Rival:
    """One variant of PyTorch for one case, alive until closed."""

    def __init__(self, torch: Torch, case: Case, variant: str, plan: Plan) -> None:
        self.case, self.variant, self.plan = case, variant, plan
        self.rates: list[float] = []  # tokens/s, one a turn
        self.note = ""
        self.n_params: int | None = None
        self.least = 2  # steps of a turn
        self.worker: TorchWorker | None = torch.serve(case, variant)
        self._try(self._warm_up)

    def _warm_up(self, worker: TorchWorker) -> None:
        """The first step compiles; the second says how many make a turn. Two in all turns together are the minimum."""
        compiling = COMPILE_SECONDS if self.variant == "compile" else 0
        self.n_params = worker.answer(self.plan.patience + compiling)["n_params"]
        if worker.steps(0, 1, self.plan.patience)[0] > self.plan.seconds:
            self.least = 2 if self.plan.turns == 1 else 1

    def _turn(self, worker: TorchWorker) -> None:
        times = worker.steps(self.plan.seconds, self.least, self.plan.seconds + self.least * 2 * self.plan.patience)
        self.rates.append(self.case.tokens / statistics.median(times))

    def _try(self, act: Callable[[TorchWorker], None]) -> None:
        if self.worker is None:
            return
        try:
            act(self.worker)
        except TooSlow:
            self.give_up(f"over {self.plan.patience:.0f} s a step")
        except Failed as e:
            self.give_up(f"failed: {e}")

    def turn(self) -> None:
        self._try(self._turn)

    def give_up(self, why: str) -> None:
        self.note = why
        self.close()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def result(self) -> dict[str, Any]:
        return {"turns": self.rates, "median": statistics.median(self.rates) if self.rates else None,
                "note": self.note, "peak_rss_bytes": None}


def our_side(steps: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [s["tokens_per_s"] for s in steps]
    return {"turns": rates, "median": statistics.median(rates), "note": "",
            "mfu": statistics.median(s["mfu"] for s in steps), "mfu_roof": steps[0]["mfu_roof"],
            "peak_rss_bytes": max(s["peak_rss_bytes"] for s in steps), "planned_bytes": steps[0]["planned_bytes"]}


def in_turns(case: Case, diloco: Diloco, rivals: list[Rival], plan: Plan, say: Say) -> list[dict[str, Any]]:
    ours = []
    for turn in range(plan.turns):
        ours += diloco.steps(case, plan.threads, plan.seconds)
        for rival in rivals:
            rival.turn()
        rates = [f"diloco {ours[-1]['tokens_per_s']:.0f}"]
        rates += [f"{r.variant} {r.rates[-1]:.0f}" for r in rivals if r.worker is not None]
        say(f"{case.name}, turn {turn + 1} of {plan.turns}: {', '.join(rates)} tokens/s")
    return ours


def peak_memory(torch: Torch, case: Case, variant: str, plan: Plan) -> int | None:
    """In a fresh process. What torch.compile made is in its cache by now, so compiling adds little."""
    try:
        return torch.memory(case, variant, COMPILE_SECONDS + 3 * plan.patience)["peak_rss_bytes"]
    except (TooSlow, Failed):
        return None


def compare(case: Case, diloco: Diloco, torch: Torch, plan: Plan, say: Say) -> dict[str, Any]:
    say(f"{case.name}: PyTorch starts and compiles")
    rivals: list[Rival] = []
    try:
        for variant in plan.variants:
            rivals.append(Rival(torch, case, variant, plan))
            if rivals[-1].note:
                say(f"{case.name}: PyTorch {variant}: {rivals[-1].note}")
                break  # compiling doesn't mend what takes a minute, or fails
        ours = in_turns(case, diloco, rivals, plan, say)
    finally:
        for rival in rivals:
            rival.close()
    for rival in rivals:
        if rival.n_params is not None and rival.n_params != ours[0]["n_params"]:
            raise Failed(f"{case.name}: {ours[0]['n_params']} parameters, PyTorch's module has {rival.n_params}")
    result = {"name": case.name, **vars(case), "n_params": ours[0]["n_params"], "ours": our_side(ours),
              "theirs": {rival.variant: rival.result() for rival in rivals}}
    for variant, theirs in result["theirs"].items():
        if theirs["turns"]:
            say(f"{case.name}: PyTorch {variant}, memory")
            theirs["peak_rss_bytes"] = peak_memory(torch, case, variant, plan)
    return result


def adamw(diloco: Diloco, plan: Plan) -> dict[str, Any]:
    """The optimizer's share of the bandwidth of an update in place, all tensors of a step together."""
    ops = diloco.bench("ops", plan.threads, plan.seconds * plan.turns, *ADAMW_CASE.flags())["ops"]
    rows = [op for op in ops if op["op"] == "adamw"]
    seconds = sum(op["calls"] * op["seconds"] for op in rows)
    gigabytes = sum(op["calls"] * op["seconds"] * op["gbs"] for op in rows)
    return {"case": ADAMW_CASE.name, "seconds": seconds, "gbs": gigabytes / seconds,
            "roof_gbs": rows[0]["gbs"] / rows[0]["roof_share"], "roof": rows[0]["roof"]}


def islands(diloco: Diloco, plan: Plan, say: Say) -> dict[str, Any]:
    """Two processes with one thread each at the same time, against one with two threads; tokens/s of all together."""
    one, two = [], []
    for turn in range(plan.turns):
        one.append(diloco.steps(ISLANDS_CASE, 2, plan.seconds)[0]["tokens_per_s"])
        two.append(sum(s["tokens_per_s"] for s in diloco.steps(ISLANDS_CASE, 1, plan.seconds, processes=2)))
        say(f"islands, turn {turn + 1} of {plan.turns}: 1 x 2 threads {one[-1]:.0f}, 2 x 1 thread {two[-1]:.0f} "
            "tokens/s")
    return {"case": ISLANDS_CASE.name, "one_island": one, "two_islands": two}


LOSS_TOLERANCE = 1e-4  # relative


def check_same_model(diloco: Diloco, torch: Torch, folder: Path, texts: list[Path]) -> dict[str, float]:
    """Trains the small preset two steps on the given texts; both programs must find the same validation loss."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "text").mkdir(parents=True)
    for i, text in enumerate(texts):
        shutil.copy(text, folder / "text" / f"{i}.txt")
    data, run = str(folder / "data"), folder / "run"
    diloco.run("prepare", str(folder / "text"), "--out", data, "--quiet")
    diloco.run("train", "--data", data, "--out", str(run), "--preset", "small", "--islands", "1", "--steps", "2",
               "--batch", "4", "--seed", "1", "--quiet")
    ours = json.loads(diloco.run("eval", str(run), "--data", data, "--json"))
    theirs = torch.once("loss", str(run / "checkpoints" / (run / "latest").read_text().strip()), data)
    if abs(ours["loss"] - theirs["loss"]) > LOSS_TOLERANCE * abs(theirs["loss"]) or ours["tokens"] != theirs["tokens"]:
        raise Failed(f"the two programs differ: on the same parameters and {ours['tokens']} tokens diloco finds a loss "
                     f"of {ours['loss']:.6f}, the module in PyTorch {theirs['loss']:.6f} on {theirs['tokens']}")
    return {"ours": ours["loss"], "theirs": theirs["loss"], "tokens": ours["tokens"]}
