"""diloco's transformer as a plain PyTorch module: what a person would write who wants it fast.

Llama family, as src/model/model.h has it: RMSNorm, rotary positions in the half-rotation layout, SwiGLU, tied
embeddings, no biases. Projections that read the same input are one matrix (queries, keys and values; gate and up):
fewer and larger products.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

INIT_STD = 0.02


@dataclass(frozen=True)
class Shape:
    vocab: int
    layers: int
    width: int
    heads: int
    head_dim: int
    ffn: int
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


# Those of src/model/config.c that are compared; the number of parameters is checked against diloco's.
PRESETS: dict[str, dict[str, int]] = {
    "nano": dict(layers=3, width=96, heads=3, head_dim=32, ffn=256),
    "small": dict(layers=4, width=256, heads=4, head_dim=64, ffn=704),
    "124m": dict(layers=12, width=768, heads=12, head_dim=64, ffn=2048),
}


def preset(name: str, vocab: int) -> Shape:
    return Shape(vocab=vocab, **PRESETS[name])


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotary_tables(shape: Shape, seq: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [seq][head_dim / 2] of position * theta^(-2i / head_dim)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angle = torch.arange(seq, dtype=torch.float64)[:, None] * shape.rope_theta**-half
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [..., seq, head_dim]: the pair (i, i + head_dim / 2) turns."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inner = shape.heads * shape.head_dim
        self.heads, self.head_dim = shape.heads, shape.head_dim
        self.attention_norm = RMSNorm(shape.width, shape.norm_eps)
        self.qkv = nn.Linear(shape.width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, shape.width, bias=False)
        self.ffn_norm = RMSNorm(shape.width, shape.norm_eps)
        self.gate_up = nn.Linear(shape.width, 2 * shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.width, bias=False)

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        qkv = self.qkv(x).view(batch, seq, 3, self.heads, self.head_dim).transpose(1, 3)
        q, k = rotate(qkv[:, :, :2].transpose(1, 2), cos, sin).unbind(1)
        y = F.scaled_dot_product_attention(q, k, qkv[:, :, 2], is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, seq, -1))

    def feed_forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attend(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    """Gives the mean cross-entropy. With chunked_loss logits of the whole batch never exist (PyTorch 2.13)."""

    def __init__(self, shape: Shape, seq: int, chunked_loss: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.norm_eps)
        cos, sin = rotary_tables(shape, seq)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.loss_options = nn.LinearCrossEntropyOptions() if chunked_loss else None
        self.initialise(shape.layers)

    def initialise(self, layers: int) -> None:
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=INIT_STD / math.sqrt(2 * layers) if residual else INIT_STD)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.norm(x)
        if self.loss_options is None:
            return F.cross_entropy(F.linear(x, self.embedding.weight).flatten(0, 1), targets.flatten())
        return F.linear_cross_entropy(x.flatten(0, 1), self.embedding.weight, targets.flatten(),
                                      options=self.loss_options)
