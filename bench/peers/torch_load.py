"""Parameters and tokens as diloco writes them, read without other packages than torch."""

import json
import pathlib
import struct

import torch
from torch import Tensor

from torch_model import Shape, Transformer

SHARD_HEADER_BYTES = 1024  # 256 int32: magic, version (1: uint16, else uint32), number of tokens


def shape_of(folder: pathlib.Path) -> Shape:
    c = json.loads((folder / "config.json").read_text())
    if c["num_key_value_heads"] != c["num_attention_heads"] or not c["tie_word_embeddings"]:
        raise SystemExit(f"{folder}: the module has as many key/value heads as heads and tied embeddings")
    return Shape(vocab=c["vocab_size"], layers=c["num_hidden_layers"], width=c["hidden_size"],
                 heads=c["num_attention_heads"], head_dim=c["head_dim"], ffn=c["intermediate_size"],
                 rope_theta=c["rope_theta"], norm_eps=c["rms_norm_eps"])


def read_safetensors(path: pathlib.Path) -> dict[str, Tensor]:
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        if t["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {t['dtype']}, not F32")
        data = bytearray(raw[8 + n + begin:8 + n + end])
        out[name] = torch.frombuffer(data, dtype=torch.float32).reshape(t["shape"])
    return out


def module_state(tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Hugging Face's names to the module's, matrices of one input joined."""
    def joined(layer: str, *names: str) -> Tensor:
        return torch.cat([tensors[f"{layer}.{name}.weight"] for name in names])

    out = {"embedding.weight": tensors["model.embed_tokens.weight"], "norm.weight": tensors["model.norm.weight"]}
    for i in range(layers):
        layer, block = f"model.layers.{i}", f"blocks.{i}"
        out[f"{block}.attention_norm.weight"] = tensors[f"{layer}.input_layernorm.weight"]
        out[f"{block}.qkv.weight"] = joined(layer, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        out[f"{block}.out.weight"] = tensors[f"{layer}.self_attn.o_proj.weight"]
        out[f"{block}.ffn_norm.weight"] = tensors[f"{layer}.post_attention_layernorm.weight"]
        out[f"{block}.gate_up.weight"] = joined(layer, "mlp.gate_proj", "mlp.up_proj")
        out[f"{block}.down.weight"] = tensors[f"{layer}.mlp.down_proj.weight"]
    return out


def load_model(folder: pathlib.Path, seq: int) -> Transformer:
    shape = shape_of(folder)
    model = Transformer(shape, seq)
    model.load_state_dict(module_state(read_safetensors(folder / "model.safetensors"), shape.layers))
    return model


def read_windows(data: pathlib.Path, split: str, seq: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets [windows][seq] of a split's first shard: whole windows, one after the other."""
    path = sorted(data.glob(f"*_{split}_*.bin"))[0]
    raw = bytearray(path.read_bytes())
    version = struct.unpack_from("<i", raw, 4)[0]
    dtype = torch.uint16 if version == 1 else torch.uint32
    tokens = torch.frombuffer(raw, dtype=dtype, offset=SHARD_HEADER_BYTES).to(torch.int64)
    n = (len(tokens) - 1) // seq * seq
    if n == 0:
        raise SystemExit(f"{path}: {len(tokens)} tokens, a window needs {seq + 1}")
    return tokens[:n].view(-1, seq), tokens[1:n + 1].view(-1, seq)
