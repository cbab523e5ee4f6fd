#!/usr/bin/env python3
"""PyTorch's side of the comparison: one process for one shape, precision and variant.

    torch_worker.py serve CASE...      trains in turns: a line of JSON in, a line of JSON out (see Server)
    torch_worker.py memory CASE...     three steps in a fresh process, then the most it ever had resident
    torch_worker.py loss MODEL DATA    mean loss of a model folder of diloco's on prepared validation tokens
    torch_worker.py versions           of torch and its libraries

Only results go to standard output.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import TextIO

import torch
from torch import Tensor

from torch_load import load_model, read_windows
from torch_model import Transformer, preset

LR, BETAS, EPS, WEIGHT_DECAY, CLIP = 1e-4, (0.9, 0.95), 1e-8, 0.1, 1.0
BATCHES = 8  # of random tokens, used in turn
MEMORY_STEPS = 3


def own_stdout() -> TextIO:
    """Compilers print to standard output too: that goes to standard error from here on."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return out


def peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Training:
    """Everything of a training step. Master weights are f32; bf16 is autocast's."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(1)
        self.bf16 = args.precision == "bf16"
        self.model = Transformer(preset(args.preset, args.vocab), args.seq, args.variant == "chunked")
        self.loss = self.compiled() if args.variant == "compile" else self.model
        self.optimizer = self.adamw()
        self.batches = torch.randint(args.vocab, (BATCHES, args.batch, args.seq + 1))
        self.n_steps = 0

    def compiled(self) -> Callable[[Tensor, Tensor], Tensor]:
        return torch.compile(self.model, fullgraph=True, dynamic=False)

    def adamw(self) -> torch.optim.AdamW:
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        norms = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": norms, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=True)

    def n_params(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def step(self) -> float:
        """Returns its seconds."""
        begin = time.perf_counter()
        batch = self.batches[self.n_steps % BATCHES]
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.n_steps += 1
        if not loss.isfinite():
            raise SystemExit(f"the loss is {loss.item()} after {self.n_steps} steps")
        return time.perf_counter() - begin


def serve(args: argparse.Namespace, out: TextIO) -> None:
    """First line out, after the first step: {"n_params", "first_step_seconds"}. Then for each line in,
    {"seconds", "least"}, one out: {"step_seconds": [...]}, at least so many steps and at least so long.

    Between turns it waits for its input; the threads of its OpenMP go to sleep after some milliseconds without work.
    """
    training = Training(args)
    first = training.step()  # compiles and allocates
    print(json.dumps({"n_params": training.n_params(), "first_step_seconds": first}), file=out)
    for line in sys.stdin:
        wanted: dict[str, float] = json.loads(line)
        end = time.perf_counter() + wanted["seconds"]
        steps: list[float] = []
        while len(steps) < wanted["least"] or time.perf_counter() < end:
            steps.append(training.step())
        print(json.dumps({"step_seconds": steps}), file=out)


def memory(args: argparse.Namespace, out: TextIO) -> None:
    imported = peak_rss_bytes()
    training = Training(args)
    for _ in range(MEMORY_STEPS):
        training.step()
    print(json.dumps({"peak_rss_bytes": peak_rss_bytes(), "imported_bytes": imported}), file=out)


def loss(args: argparse.Namespace, out: TextIO) -> None:
    model = load_model(args.model, args.seq)
    tokens, targets = read_windows(args.data, "val", args.seq)
    with torch.no_grad():
        value = model(tokens, targets)
    print(json.dumps({"loss": value.item(), "tokens": tokens.numel()}), file=out)


def versions(_: argparse.Namespace, out: TextIO) -> None:
    config = torch.__config__.show()
    mkl = re.search(r"oneAPI Math Kernel Library Version (\S+?)-", config)
    onednn = re.search(r"MKL-DNN v(\S+)", config)
    isa = re.search(r"CPU capability usage: (\S+)", config)
    print(json.dumps({"python": platform.python_version(), "torch": torch.__version__,
                      "mkl": mkl and mkl.group(1), "onednn": onednn and onednn.group(1),
                      "isa": isa and isa.group(1)}), file=out)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    tasks = p.add_subparsers(dest="task", required=True)
    for name in ("serve", "memory"):
        t = tasks.add_parser(name)
        t.add_argument("--preset", required=True)
        t.add_argument("--vocab", type=int, required=True)
        t.add_argument("--batch", type=int, required=True)
        t.add_argument("--seq", type=int, required=True)
        t.add_argument("--precision", choices=("f32", "bf16"), required=True)
        t.add_argument("--variant", choices=("eager", "compile", "chunked"), required=True)
    tasks.add_parser("versions")
    t = tasks.add_parser("loss")
    t.add_argument("model", type=pathlib.Path)
    t.add_argument("data", type=pathlib.Path)
    t.add_argument("--seq", type=int, default=256)
    return p


TASKS = {"serve": serve, "memory": memory, "loss": loss, "versions": versions}


def main() -> None:
    args = parser().parse_args()
    out = own_stdout()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    TASKS[args.task](args, out)


if __name__ == "__main__":
    main()
