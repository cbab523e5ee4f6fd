#!/usr/bin/env python3
"""An independent reference of the whole training method, in plain PyTorch.

It trains two very small models with DiLoCo (3 islands, 4 outer steps of 5 inner steps) and writes every number that
another implementation must reproduce: parameters, first gradients, losses, gradient norms, learning rates. README.md
in this folder describes the files. Nothing here shares code or conventions with the C program beyond the formulas.

    python3 diloco_reference.py            writes tests/fixtures/golden/
    python3 diloco_reference.py --check    makes them again and compares with the committed ones (1e-6)

The committed numbers come from arithmetic in float64, rounded once to float32, so they do not depend on the machine;
each fixture states how far the same run in float32 is from them.

Needs torch and safetensors. Where transformers is there, the forward pass and the gradients are checked against its
Llama and Qwen3 first.
"""

import argparse
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

CHECK_TOLERANCE = 1e-6
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "golden")

MODEL = dict(vocab_size=64, n_layers=2, d_model=32, n_heads=4, n_kv_heads=2, head_dim=8, d_ffn=24, context=16,
             rope_theta=10000.0, norm_eps=1e-5)
# eps is far above the usual 1e-8 for two reasons. AdamW divides by the gradient's own size, so where a gradient happens
# to be a thousand times smaller than its neighbours, the rounding in it becomes a visible part of the step; eps bounds
# that. And at 1e-8 nobody would notice an eps in the wrong place.
RUN = dict(islands=3, outer_steps=4, inner_steps=5, seq_len=16,
           lr=3e-3, min_ratio=0.1, warmup_steps=4, beta1=0.9, beta2=0.95, eps=1e-4, weight_decay=0.1, clip=1.0,
           outer_lr=0.7, outer_momentum=0.9)

# The second one shows what the first can't: H * D differs from C, islands weigh differently, and some gradients stay
# below the clipping norm (in the first one all are above).
VARIANTS = {
    "llama": dict(seed=1, batch=[2, 2, 2], run=RUN, model=dict(MODEL, tie_embeddings=False, qk_norm=False)),
    "qwen3-tied": dict(seed=2, batch=[2, 1, 3], run=dict(RUN, clip=4.0),
                       model=dict(MODEL, d_model=24, head_dim=16, d_ffn=20, tie_embeddings=True, qk_norm=True,
                                  rope_theta=500.0)),
}


# ---- numbers that depend on the seed alone, whatever the version of torch -----------------------------------------

class Random:
    """A 64-bit linear congruential generator (Knuth's MMIX constants); the upper 32 bits are used."""

    def __init__(self, seed):
        self.state = seed
        for _ in range(4):
            self.u32()

    def u32(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 32

    def uniform(self, low, high):
        return low + (high - low) * self.u32() / 2**32

    def below(self, n):
        return self.u32() % n


def parameter_shapes(model):
    """Names as in Hugging Face checkpoints; matrices are [out][in]."""
    C, D, ffn, V = model["d_model"], model["head_dim"], model["d_ffn"], model["vocab_size"]
    q, kv = model["n_heads"] * D, model["n_kv_heads"] * D
    shapes = {"model.embed_tokens.weight": (V, C)}
    for i in range(model["n_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = (C,)
        shapes[p + "self_attn.q_proj.weight"] = (q, C)
        shapes[p + "self_attn.k_proj.weight"] = (kv, C)
        shapes[p + "self_attn.v_proj.weight"] = (kv, C)
        shapes[p + "self_attn.o_proj.weight"] = (C, q)
        if model["qk_norm"]:
            shapes[p + "self_attn.q_norm.weight"] = (D,)
            shapes[p + "self_attn.k_norm.weight"] = (D,)
        shapes[p + "post_attention_layernorm.weight"] = (C,)
        shapes[p + "mlp.gate_proj.weight"] = (ffn, C)
        shapes[p + "mlp.up_proj.weight"] = (ffn, C)
        shapes[p + "mlp.down_proj.weight"] = (C, ffn)
    shapes["model.norm.weight"] = (C,)
    if not model["tie_embeddings"]:
        shapes["lm_head.weight"] = (V, C)
    return shapes


def initial_parameters(model, rng):
    """Larger than a real initialisation: attention must be far from uniform, or errors in it would not show."""
    out = {}
    for name, shape in parameter_shapes(model).items():
        n = math.prod(shape)
        if len(shape) == 1:
            values = [1.0 + rng.uniform(-0.2, 0.2) for _ in range(n)]
        else:
            values = [rng.uniform(-0.35, 0.35) for _ in range(n)]
        # Values that float32 holds exactly, so that every precision starts from the same point.
        out[name] = torch.tensor(values, dtype=torch.float32).reshape(shape)
    return out


def make_batches(model, run, batch, rng):
    """tokens[island]: int32 [steps][B][T+1]. Islands follow different rules, as islands with different data do."""
    V, steps, out = model["vocab_size"], run["outer_steps"] * run["inner_steps"], []
    for island, B in enumerate(batch):
        stride, rows = 3 + 4 * island, []
        for _ in range(steps * B):
            row = [rng.below(V)]
            while len(row) <= run["seq_len"]:
                jump = rng.below(V) if rng.below(4) == 0 else (row[-1] * stride + 1) % V
                row.append(jump)
            rows.append(row)
        out.append(torch.tensor(rows, dtype=torch.int32).reshape(steps, B, run["seq_len"] + 1))
    return out


# ---- the model ----------------------------------------------------------------------------------------------------

def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x, theta):
    """x [B][heads][T][D]; the pair (i, i + D/2) turns by position * theta^(-2i/D)."""
    T, D = x.shape[-2], x.shape[-1]
    frequency = torch.tensor([theta ** (-2 * i / D) for i in range(D // 2)], dtype=torch.float64)
    angle = torch.arange(T, dtype=torch.float64)[:, None] * frequency[None, :]
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., : D // 2], x[..., D // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attention(p, prefix, x, model):
    B, T, _ = x.shape
    H, K, D = model["n_heads"], model["n_kv_heads"], model["head_dim"]

    def heads(name, n):
        return (x @ p[prefix + name + "_proj.weight"].T).reshape(B, T, n, D).transpose(1, 2)

    q, k, v = heads("q", H), heads("k", K), heads("v", K)
    if model["qk_norm"]:
        q = rms_norm(q, p[prefix + "q_norm.weight"], model["norm_eps"])
        k = rms_norm(k, p[prefix + "k_norm.weight"], model["norm_eps"])
    q, k = rotate(q, model["rope_theta"]), rotate(k, model["rope_theta"])
    k, v = k.repeat_interleave(H // K, dim=1), v.repeat_interleave(H // K, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(D)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return y.transpose(1, 2).reshape(B, T, H * D) @ p[prefix + "o_proj.weight"].T


def logits(p, tokens, model):
    x, eps = p["model.embed_tokens.weight"][tokens], model["norm_eps"]
    for i in range(model["n_layers"]):
        n = f"model.layers.{i}."
        x = x + attention(p, n + "self_attn.", rms_norm(x, p[n + "input_layernorm.weight"], eps), model)
        h = rms_norm(x, p[n + "post_attention_layernorm.weight"], eps)
        gate, up = h @ p[n + "mlp.gate_proj.weight"].T, h @ p[n + "mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ p[n + "mlp.down_proj.weight"].T
    head = p["model.embed_tokens.weight" if model["tie_embeddings"] else "lm_head.weight"]
    return rms_norm(x, p["model.norm.weight"], eps) @ head.T


def mean_loss(p, rows, model):
    """rows [B][T+1]: mean cross-entropy, in nats, over the B*T positions."""
    rows = rows.long()
    out = logits(p, rows[:, :-1], model)
    return F.cross_entropy(out.reshape(-1, model["vocab_size"]), rows[:, 1:].reshape(-1))


# ---- training -----------------------------------------------------------------------------------------------------

def learning_rate(step, run):
    """Warm-up and cosine as in llm.c: step counts from 0, and min_ratio belongs to the step after the last."""
    total = run["outer_steps"] * run["inner_steps"]
    if step < run["warmup_steps"]:
        return run["lr"] * (step + 1) / run["warmup_steps"]
    along = (step - run["warmup_steps"]) / (total - run["warmup_steps"])
    low = run["min_ratio"] * run["lr"]
    return low + 0.5 * (1 + math.cos(math.pi * along)) * (run["lr"] - low)


class Island:
    """Parameters are set anew each round; the AdamW state stays for the whole run."""

    def __init__(self, shapes, run, dtype):
        self.p = {n: torch.zeros(s, dtype=dtype, requires_grad=True) for n, s in shapes.items()}
        matrices = [t for t in self.p.values() if t.dim() == 2]
        vectors = [t for t in self.p.values() if t.dim() != 2]
        self.optimizer = torch.optim.AdamW(
            [dict(params=matrices, weight_decay=run["weight_decay"]), dict(params=vectors, weight_decay=0.0)],
            lr=run["lr"], betas=(run["beta1"], run["beta2"]), eps=run["eps"])
        self.run, self.first_gradient = run, None

    def step(self, rows, step, model):
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.run)
        self.optimizer.zero_grad()
        loss = mean_loss(self.p, rows, model)
        loss.backward()
        if self.first_gradient is None:
            self.first_gradient = {n: t.grad.clone() for n, t in self.p.items()}
        norm = torch.nn.utils.clip_grad_norm_(list(self.p.values()), self.run["clip"])
        self.optimizer.step()
        return loss.item(), norm.item()


def train(model, run, batch, start, batches, dtype):
    theta = {n: t.to(dtype).clone().requires_grad_() for n, t in start.items()}
    outer = torch.optim.SGD(theta.values(), lr=run["outer_lr"], momentum=run["outer_momentum"], nesterov=True)
    islands = [Island(parameter_shapes(model), run, dtype) for _ in batch]
    out = dict(losses=[[] for _ in batch], norms=[[] for _ in batch], theta=[])
    tokens = [B * run["seq_len"] * run["inner_steps"] for B in batch]

    for t in range(run["outer_steps"]):
        for i, island in enumerate(islands):
            with torch.no_grad():
                for n in theta:
                    island.p[n].copy_(theta[n])
            for s in range(t * run["inner_steps"], (t + 1) * run["inner_steps"]):
                loss, norm = island.step(batches[i][s], s, model)
                out["losses"][i].append(loss)
                out["norms"][i].append(norm)
        for n in theta:  # old minus new, the mean weighted by the tokens behind each
            delta = sum(w * (theta[n].detach() - i.p[n].detach()) for w, i in zip(tokens, islands))
            theta[n].grad = delta / sum(tokens)
        outer.step()
        out["theta"].append({n: v.detach().clone() for n, v in theta.items()})
    out["gradient"] = islands[0].first_gradient
    return out


# ---- checks -------------------------------------------------------------------------------------------------------

def distance(a, b):
    """max |a - b| / max |b|, the largest over the tensors."""
    return max((a[n].double() - b[n].double()).abs().max().item() / b[n].double().abs().max().item() for n in b)


def list_distance(a, b):
    flat = [(x, y) for row_a, row_b in zip(a, b) for x, y in zip(row_a, row_b)]
    return max(abs(x - y) / abs(y) for x, y in flat)


def hugging_face_model(model):
    import transformers

    common = dict(vocab_size=model["vocab_size"], hidden_size=model["d_model"], intermediate_size=model["d_ffn"],
                  num_hidden_layers=model["n_layers"], num_attention_heads=model["n_heads"],
                  num_key_value_heads=model["n_kv_heads"], head_dim=model["head_dim"],
                  max_position_embeddings=model["context"], rms_norm_eps=model["norm_eps"],
                  rope_theta=model["rope_theta"], tie_word_embeddings=model["tie_embeddings"],
                  attention_bias=False, attn_implementation="eager")
    if transformers.__version__ >= "5":
        common["rope_parameters"] = dict(rope_type="default", rope_theta=common.pop("rope_theta"))
    if model["qk_norm"]:
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**common))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(mlp_bias=False, **common))


def check_against_hugging_face(name, model, start, rows):
    try:
        their = hugging_face_model(model).double()
    except ImportError:
        print(f"{name}: transformers is not there, forward pass not compared")
        return
    state = {n: t.double() for n, t in start.items()}
    if model["tie_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    their.load_state_dict(state)
    rows = rows.long()
    their_logits = their(rows[:, :-1]).logits
    F.cross_entropy(their_logits.reshape(-1, model["vocab_size"]), rows[:, 1:].reshape(-1)).backward()
    theirs = {n: t.grad for n, t in their.named_parameters()}

    ours = {n: t.double().requires_grad_() for n, t in start.items()}
    our_logits = logits(ours, rows[:, :-1], model)
    mean_loss(ours, rows, model).backward()
    forward = distance(dict(logits=our_logits), dict(logits=their_logits))
    backward = distance({n: t.grad for n, t in ours.items()}, theirs)
    print(f"{name}: against {type(their).__name__}: logits {forward:.1e}, gradients {backward:.1e}")
    # Hugging Face keeps the rotary table and the norms' inner values in float32, hence not 1e-12.
    if forward > 1e-5 or backward > 1e-5:
        sys.exit(f"{name}: the reference differs from {type(their).__name__}")


# ---- fixtures -----------------------------------------------------------------------------------------------------

def compute(name):
    spec = VARIANTS[name]
    model, run, batch, rng = spec["model"], spec["run"], spec["batch"], Random(spec["seed"])
    start = initial_parameters(model, rng)
    batches = make_batches(model, run, batch, rng)
    check_against_hugging_face(name, model, start, batches[0][0])
    exact = train(model, run, batch, start, batches, torch.float64)
    single = train(model, run, batch, start, batches, torch.float32)
    error = dict(losses=list_distance(single["losses"], exact["losses"]),
                 grad_norms=list_distance(single["norms"], exact["norms"]),
                 gradient=distance(single["gradient"], exact["gradient"]),
                 theta=[distance(a, b) for a, b in zip(single["theta"], exact["theta"])])
    shown = ", ".join(f"{k} " + (f"{max(v):.1e}" if isinstance(v, list) else f"{v:.1e}") for k, v in error.items())
    print(f"{name}: float32 against float64: {shown}")
    if max(error["losses"], error["grad_norms"], error["gradient"], *error["theta"]) > 5e-6:
        sys.exit(f"{name}: float32 alone leaves too little of the 1e-5 that others are held to")

    steps = run["outer_steps"] * run["inner_steps"]
    numbers = dict(variant=name, seed=spec["seed"], model=model, run=run, batch=batch,
                   weights=[B * run["seq_len"] * run["inner_steps"] for B in batch],
                   lr=[learning_rate(s, run) for s in range(steps)],
                   losses=exact["losses"], grad_norms=exact["norms"])
    tensors = {"init": start, "grad": exact["gradient"], "tokens": {f"island{i}": t for i, t in enumerate(batches)}}
    for t, theta in enumerate(exact["theta"], 1):
        tensors[f"theta-{t}"] = theta
    return numbers, error, tensors


def to_file_dtype(tensor):
    return (tensor if tensor.dtype == torch.int32 else tensor.to(torch.float32)).contiguous()


def write(name, numbers, error, tensors):
    folder = os.path.join(GOLDEN, name)
    os.makedirs(folder, exist_ok=True)
    for part, content in tensors.items():
        save_file({n: to_file_dtype(t) for n, t in content.items()}, os.path.join(folder, part + ".safetensors"))
    with open(os.path.join(folder, "fixture.json"), "w", encoding="utf-8") as f:
        json.dump(dict(numbers, float32_error=error), f, indent=1)
        f.write("\n")
    total = sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder))
    print(f"{name}: wrote {total} bytes")


def compare(name, numbers, tensors):
    folder, worst = os.path.join(GOLDEN, name), 0.0
    with open(os.path.join(folder, "fixture.json"), encoding="utf-8") as f:
        committed = json.load(f)
    committed.pop("float32_error")  # depends on the machine
    for key, value in json.loads(json.dumps(numbers)).items():
        if key in ("losses", "grad_norms"):
            worst = max(worst, list_distance(value, committed[key]))
        elif key == "lr":
            worst = max(worst, list_distance([value], [committed[key]]))
        elif value != committed[key]:
            sys.exit(f"{name}: {key} is {committed[key]} in fixture.json, {value} now")
    for part, content in tensors.items():
        with safe_open(os.path.join(folder, part + ".safetensors"), "pt") as f:
            if sorted(f.keys()) != sorted(content):
                sys.exit(f"{name}: {part}.safetensors holds other tensors")
            stored = {n: f.get_tensor(n) for n in content}
        if part in ("init", "tokens"):
            if any(not torch.equal(stored[n], content[n]) for n in content):
                sys.exit(f"{name}: {part}.safetensors differs")
        else:
            worst = max(worst, distance(content, stored))
    print(f"{name}: largest relative difference to the committed fixture {worst:.1e}")
    if not worst <= CHECK_TOLERANCE:
        sys.exit(f"{name}: more than {CHECK_TOLERANCE:.0e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed fixtures, write nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in VARIANTS:
        numbers, error, tensors = compute(name)
        if arguments.check:
            compare(name, numbers, tensors)
        else:
            write(name, numbers, error, tensors)


if __name__ == "__main__":
    main()
