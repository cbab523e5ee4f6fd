"""What is compared: shapes, precisions, and the shapes' names."""

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    preset: str
    vocab: int
    batch: int
    seq: int
    precision: str

    @property
    def name(self) -> str:
        return f"{self.preset}-{self.batch}x{self.seq}-{self.precision}"

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    def flags(self) -> list[str]:
        """The same words for diloco bench and for torch_worker.py."""
        return ["--preset", self.preset, "--vocab", str(self.vocab), "--batch", str(self.batch), "--seq",
                str(self.seq), "--precision", self.precision]


SHAPES = (
    ("nano", 2048, 8, 128),
    ("small", 4096, 16, 256),
    ("124m", 50257, 4, 256),
    ("124m", 50257, 1, 1024),
    ("124m", 50257, 1, 2048),
)
CASES = tuple(Case(*shape, precision) for shape in SHAPES for precision in ("f32", "bf16"))

# Of our side alone.
ADAMW = "adamw"
ISLANDS = "islands"
ADAMW_CASE = Case("124m", 50257, 1, 64, "f32")
ISLANDS_CASE = Case("small", 4096, 16, 256, "f32")


def selected(patterns: list[str]) -> list[str]:
    """Names that any of the patterns matches, in the order of the table."""
    names = [case.name for case in CASES] + [ADAMW, ISLANDS]
    chosen = [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    if not chosen:
        raise SystemExit(f"no case is called {' or '.join(patterns)}; there are: {' '.join(names)}")
    return chosen
