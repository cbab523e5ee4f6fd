#!/usr/bin/env python3
"""Saves a small random model with transformers, to be read by diloco.

    hf_make.py FOLDER [--kind llama|qwen3] [--tied] [--dtype float32|bfloat16|float16] [--shard-bytes N] [--seed N]

Exit status 77 (skipped) when torch or transformers is not installed.
"""
import argparse
import sys

try:
    import torch
    import transformers
except ImportError as e:
    print(f"skipped: {e}", file=sys.stderr)
    sys.exit(77)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--kind", default="llama", choices=["llama", "qwen3"])
    p.add_argument("--tied", action="store_true")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--shard-bytes", type=int)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()

    torch.manual_seed(a.seed)
    config, model = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }[a.kind]
    c = config(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, head_dim=8 if a.kind == "llama" else 12, max_position_embeddings=64,
               tie_word_embeddings=a.tied, initializer_range=0.2, bos_token_id=0, eos_token_id=0)
    m = model(c)
    for name, v in m.named_parameters():
        if "norm" in name:  # ones would hide a norm that is not applied
            v.data = 1 + 0.3 * torch.randn_like(v)
    m.to(getattr(torch, a.dtype))
    m.save_pretrained(a.folder, **({"max_shard_size": a.shard_bytes} if a.shard_bytes else {}))


main()
