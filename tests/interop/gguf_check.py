#!/usr/bin/env python3
"""Reads GGUF files that diloco wrote with the format's own Python package, and has diloco read files that it wrote.

    gguf_check.py DILOCO        DILOCO is the program; run in the root of the tree

Exit status 77 (skipped) when the package gguf is not installed.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import gguf
    import numpy as np
except ImportError as e:
    print(f"skipped: {e}", file=sys.stderr)
    sys.exit(77)

TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
V, C, F, H, K, D, L, T = 700, 64, 96, 4, 2, 16, 2, 128


def names(i):
    """Hugging Face's name, GGUF's name, shape; queries and keys with their heads."""
    at, blk = f"model.layers.{i}.", f"blk.{i}."
    return [
        (at + "input_layernorm.weight", blk + "attn_norm.weight", (C,), 0),
        (at + "self_attn.q_proj.weight", blk + "attn_q.weight", (H * D, C), H),
        (at + "self_attn.k_proj.weight", blk + "attn_k.weight", (K * D, C), K),
        (at + "self_attn.v_proj.weight", blk + "attn_v.weight", (K * D, C), 0),
        (at + "self_attn.o_proj.weight", blk + "attn_output.weight", (C, H * D), 0),
        (at + "post_attention_layernorm.weight", blk + "ffn_norm.weight", (C,), 0),
        (at + "mlp.gate_proj.weight", blk + "ffn_gate.weight", (F, C), 0),
        (at + "mlp.up_proj.weight", blk + "ffn_up.weight", (F, C), 0),
        (at + "mlp.down_proj.weight", blk + "ffn_down.weight", (C, F), 0),
    ]


def qk_norms(i):
    return [(f"model.layers.{i}.self_attn.{x}_norm.weight", f"blk.{i}.attn_{x}_norm.weight", (D,), 0) for x in "qk"]


def tensors_of(kind, tied):
    out = [("model.embed_tokens.weight", "token_embd.weight", (V, C), 0),
           ("model.norm.weight", "output_norm.weight", (C,), 0)]
    if not tied:
        out.append(("lm_head.weight", "output.weight", (V, C), 0))
    for i in range(L):
        out += names(i) + (qk_norms(i) if kind == "qwen3" else [])
    return out


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def read_safetensors(path):
    raw = open(path, "rb").read()
    n, = struct.unpack("<Q", raw[:8])
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            assert t["dtype"] == "F32", t
            out[name] = np.frombuffer(raw[8 + n + begin:8 + n + end], np.float32).reshape(t["shape"])
    return out


def make_folder(folder, kind, tied, tokenizer, rng):
    os.mkdir(folder)
    tensors = {here: rng.standard_normal(shape).astype(np.float32) for here, _, shape, _ in tensors_of(kind, tied)}
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    config = {"model_type": kind, "vocab_size": V, "hidden_size": C, "intermediate_size": F, "num_hidden_layers": L,
              "num_attention_heads": H, "num_key_value_heads": K, "head_dim": D, "max_position_embeddings": T,
              "rms_norm_eps": 1e-5, "rope_theta": 20000.0, "tie_word_embeddings": tied, "bos_token_id": 0,
              "eos_token_id": 0}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        f.write(open(tokenizer).read())
    return tensors


def interleave(x, heads):
    """What the format's own converter does to queries and keys of Llama."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def check_fields(reader, kind, dtype, tokenizer):
    def value(key):
        assert key in reader.fields, f"{key} is missing"
        return reader.fields[key].contents()

    expected = {
        "general.architecture": kind, "general.file_type": FILE_TYPES[dtype], f"{kind}.vocab_size": V,
        f"{kind}.context_length": T, f"{kind}.embedding_length": C, f"{kind}.block_count": L,
        f"{kind}.feed_forward_length": F, f"{kind}.attention.head_count": H, f"{kind}.attention.head_count_kv": K,
        f"{kind}.attention.key_length": D, f"{kind}.attention.value_length": D, f"{kind}.rope.dimension_count": D,
        f"{kind}.attention.layer_norm_rms_epsilon": float(np.float32(1e-5)), f"{kind}.rope.freq_base": 20000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.pre": "llama-bpe" if "llama3" in tokenizer else "gpt-2",
    }
    for key, v in expected.items():
        assert value(key) == v, (key, value(key), v)
    source = json.load(open(tokenizer))
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    assert len(tokens) == len(types) == len(set(tokens)) == V
    for text, i in source["model"]["vocab"].items():
        assert tokens[i] == text and types[i] == (3 if i == 0 else 1), (i, tokens[i], types[i], text)
    assert all(t == 5 for t in types[len(source["model"]["vocab"]):])
    assert value("tokenizer.ggml.merges") == [" ".join(m) for m in source["model"]["merges"]]


def check_tensors(reader, kind, tied, dtype, source):
    wanted = tensors_of(kind, tied)
    found = {t.name: t for t in reader.tensors}
    assert sorted(found) == sorted(there for _, there, _, _ in wanted), sorted(found)
    for here, there, shape, heads in wanted:
        t, x = found[there], source[here]
        if heads and kind == "llama":
            x = interleave(x, heads)
        kind_of_t = TYPES[dtype] if len(shape) == 2 else TYPES["f32"]
        assert t.tensor_type == kind_of_t, (there, t.tensor_type)
        assert tuple(reversed(t.shape.tolist())) == shape, (there, t.shape)
        same = gguf.quants.quantize(x, kind_of_t)
        assert t.data.tobytes() == same.tobytes(), f"{there} as {kind_of_t.name}: other bytes than the package's own"
        far = np.abs(gguf.quants.dequantize(t.data, kind_of_t).reshape(shape) - x).max()
        bound = {"F32": 0, "F16": 2**-11, "BF16": 2**-8, "Q8_0": (0.5 + 2**-4) / 127}[kind_of_t.name] * np.abs(x).max()
        assert far <= bound, (there, far, bound)


def run(*args):
    p = subprocess.run(args, capture_output=True, text=True)
    assert p.returncode == 0, f"{' '.join(args)}: {p.stderr}"


def check_export(diloco, folder, kind, tied, tokenizer, rng):
    model = os.path.join(folder, f"{kind}-{tied}-{os.path.basename(tokenizer)}")
    source = make_folder(model, kind, tied, tokenizer, rng)
    for dtype in TYPES:
        path = f"{model}.{dtype}.gguf"
        run(diloco, "export", model, "--out", path, "--format", "gguf", "--dtype", dtype)
        reader = gguf.GGUFReader(path)
        assert reader.alignment == 32
        check_fields(reader, kind, dtype, tokenizer)
        check_tensors(reader, kind, tied, dtype, source)


def check_import(diloco, folder, kind, dtype, rng):
    """A file written by the package, without a tokenizer."""
    path, back = os.path.join(folder, f"{kind}-{dtype}.gguf"), os.path.join(folder, f"{kind}-{dtype}")
    w = gguf.GGUFWriter(path, kind)
    w.add_context_length(T)
    w.add_embedding_length(C)
    w.add_block_count(L)
    w.add_feed_forward_length(F)
    w.add_head_count(H)
    w.add_head_count_kv(K)
    w.add_key_length(D)
    w.add_value_length(D)
    w.add_rope_dimension_count(D)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(20000.0)
    w.add_tokenizer_model("no_vocab")
    expected = {}
    for here, there, shape, heads in tensors_of(kind, False):
        x = rng.standard_normal(shape).astype(np.float32)
        type_ = TYPES[dtype] if len(shape) == 2 else TYPES["f32"]
        stored = gguf.quants.quantize(interleave(x, heads) if heads and kind == "llama" else x, type_)
        w.add_tensor(there, stored, raw_dtype=type_)
        expected[here] = gguf.quants.dequantize(gguf.quants.quantize(x, type_), type_).reshape(shape)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    run(diloco, "import", path, "--out", back)
    found = read_safetensors(os.path.join(back, "model.safetensors"))
    assert sorted(found) == sorted(expected)
    for name, x in expected.items():
        assert found[name].tobytes() == x.tobytes(), name
    config = json.load(open(os.path.join(back, "config.json")))
    assert (config["model_type"], config["rms_norm_eps"], config["rope_theta"]) == (kind, 1e-5, 20000.0), config


def main():
    diloco = os.path.abspath(sys.argv[1])
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("llama", "qwen3"):
            for tied, tokenizer in ((True, "gpt2"), (False, "llama3")):
                check_export(diloco, folder, kind, tied, f"tests/fixtures/tokenizer/{tokenizer}.json", rng)
            for dtype in TYPES:
                check_import(diloco, folder, kind, dtype, rng)
    print("16 files written and 8 files read: all the same")


main()
