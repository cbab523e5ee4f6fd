"""The two programs as they run: diloco bench afresh in every turn, PyTorch as processes that wait between turns."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import Case

HERE = Path(__file__).resolve().parent
TIMED_SHARE = 8 / 15  # of the seconds that diloco bench is given; the rest measures the peak and profiles


class TooSlow(Exception):
    """An answer did not come in time."""


class Failed(Exception):
    """A program ended without a result."""


class Diloco:
    def __init__(self, program: Path) -> None:
        self.program = str(program)

    def _start(self, *args: str) -> "subprocess.Popen[str]":
        return subprocess.Popen([self.program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def _finish(process: "subprocess.Popen[str]") -> str:
        out, err = process.communicate()
        if process.returncode != 0:
            raise Failed(f"{' '.join(map(str, process.args))}: {err.strip()}")  # type: ignore[arg-type]
        return out

    def run(self, *args: str) -> str:
        return self._finish(self._start(*args))

    def bench(self, only: str, threads: int, seconds: float, *flags: str) -> dict[str, Any]:
        return json.loads(self._finish(self._bench(only, threads, seconds, *flags)))

    def _bench(self, only: str, threads: int, seconds: float, *flags: str) -> "subprocess.Popen[str]":
        return self._start("bench", "--only", only, "--threads", str(threads), "--seconds", str(seconds), "--json",
                           *flags)

    def steps(self, case: Case, threads: int, seconds: float, processes: int = 1) -> list[dict[str, Any]]:
        """One result for each of the processes, which run at the same time."""
        started = [self._bench("step", threads, seconds / TIMED_SHARE, *case.flags()) for _ in range(processes)]
        return [json.loads(self._finish(p))["steps"][0] for p in started]


class Torch:
    """Starts workers. While they are timed, glibc keeps the memory that it has: by default each large tensor is mapped
    and zeroed anew in every step, which costs PyTorch a tenth to a third of its speed. Memory is measured without."""

    KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}

    def __init__(self, threads: int, cache: Path) -> None:
        self.command = [sys.executable, str(HERE / "torch_worker.py"), "--threads", str(threads)]
        self.env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)}

    def once(self, *args: str, seconds: float = 600) -> dict[str, Any]:
        try:
            p = subprocess.run([*self.command, *args], env=self.env, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired as e:
            raise TooSlow(f"nothing after {seconds:.0f} s") from e
        if p.returncode != 0:
            raise Failed(f"torch_worker.py {' '.join(args)}: {p.stderr.strip()[-2000:]}")
        return json.loads(p.stdout)

    def serve(self, case: Case, variant: str) -> "TorchWorker":
        return TorchWorker([*self.command, "serve", *case.flags(), "--variant", variant],
                           {**self.env, **self.KEEP_MEMORY})

    def memory(self, case: Case, variant: str, seconds: float) -> dict[str, Any]:
        return self.once("memory", *case.flags(), "--variant", variant, seconds=seconds)


class TorchWorker:
    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # a pipe that nobody reads would stop a talkative compiler
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)

    def answer(self, patience: float) -> dict[str, Any]:
        """The next line. Answers are short, so one that has begun is complete."""
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], patience)
        if not ready:
            raise TooSlow(f"nothing after {patience:.0f} s")
        line = out.readline()
        if not line:
            raise Failed(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        return lines[-1] if lines else f"exit status {self.process.returncode}"

    def steps(self, seconds: float, least: int, patience: float) -> list[float]:
        """Times of at least so many steps, for at least so long."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"seconds": seconds, "least": least}) + "\n")
        self.process.stdin.flush()
        return self.answer(patience)["step_seconds"]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()
