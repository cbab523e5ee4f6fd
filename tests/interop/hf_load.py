#!/usr/bin/env python3
"""Loads a model folder with transformers and says what it computes, as one JSON object on standard output.

    hf_load.py FOLDER ID ID ID ...        mean cross-entropy of each id given those before it, logits after the last
    hf_load.py FOLDER --text TEXT         the same on the ids the folder's tokenizer gives; also encodes and decodes

Exit status 77 (skipped) when torch or transformers is not installed.
"""
import argparse
import json
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
    p.add_argument("ids", nargs="*", type=int)
    p.add_argument("--text")
    p.add_argument("--generate", type=int, default=0, help="greedy tokens to append")
    a = p.parse_args()

    out = {"transformers": transformers.__version__}
    # f32 compute, whatever the file's dtype
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        a.folder, dtype=torch.float32, output_loading_info=True, attn_implementation="eager")
    model.eval()
    out["class"] = type(model).__name__
    out["n_params"] = sum(p.numel() for p in model.parameters())
    out["missing"] = sorted(info["missing_keys"])
    out["unexpected"] = sorted(info["unexpected_keys"])
    out["mismatched"] = sorted(map(str, info["mismatched_keys"]))
    out["rope_theta"] = model.config.rope_parameters["rope_theta"] if hasattr(model.config, "rope_parameters") \
        else model.config.rope_theta
    ids = a.ids
    if a.text is not None:
        tok = transformers.AutoTokenizer.from_pretrained(a.folder)
        ids = tok(a.text)["input_ids"]
        out.update(tokenizer=type(tok).__name__, ids=ids, decoded=tok.decode(ids), bos=tok.bos_token, eos=tok.eos_token,
                   bos_id=tok.bos_token_id, eos_id=tok.eos_token_id, pad_id=tok.pad_token_id)
    x = torch.tensor([ids])
    with torch.no_grad():
        logits = model(input_ids=x).logits[0].double()
    out["logits"] = logits[-1].tolist()
    if len(ids) > 1:
        out["loss"] = torch.nn.functional.cross_entropy(logits[:-1], x[0, 1:]).item()
    if a.generate:
        out["generated"] = model.generate(x, max_new_tokens=a.generate, do_sample=False)[0].tolist()
    json.dump(out, sys.stdout)
    print()


main()
