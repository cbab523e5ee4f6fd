"""Loads the latest checkpoint of run folders with transformers and computes what `diloco eval` computes.

    load_checkpoint.py DATA CONTEXT RUN...

Prints a JSON object for each, by its name: the mean loss over the validation tokens in windows of CONTEXT, how many tokens were predicted,
the model's class, and whether the tokenizer gives the shards' tokens back when it encodes their text again.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def read_shards(folder, split):
    """llm.c's layout: 256 int32 of header (magic, version, tokens), then uint16 or uint32 tokens."""
    parts = []
    for path in sorted(pathlib.Path(folder).glob(f"*{split}*.bin")):
        header = np.fromfile(path, dtype=np.int32, count=256)
        dtype = np.uint16 if header[1] == 1 else np.uint32
        parts.append(np.fromfile(path, dtype=dtype, offset=1024)[: header[2]].astype(np.int64))
    return np.concatenate(parts)


def mean_loss(model, tokens, context):
    """Whole windows of `context` inputs, each predicting its next token; a shorter rest is left out."""
    total, n = 0.0, 0
    for start in range(0, len(tokens) - context, context):
        inputs = torch.tensor(tokens[start : start + context])[None]
        targets = torch.tensor(tokens[start + 1 : start + 1 + context])
        with torch.no_grad():
            logits = model(inputs).logits[0, : len(targets)].double()
        total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
        n += len(targets)
    return total / n, n


def compare_tokenizer(tokenizer, tokens, eot):
    compared = differ = 0
    ends = np.flatnonzero(tokens == eot)
    for start, end in zip([0, *(ends[:-1] + 1)], ends):
        ids = tokens[start:end].tolist()
        if not ids:
            continue
        text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        compared += 1
        differ += tokenizer(text, add_special_tokens=False)["input_ids"] != ids
    return compared, differ


def examine(run, tokens, context):
    folder = run / "checkpoints" / (run / "latest").read_text().strip()
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    loss, n = mean_loss(model, tokens, context)
    compared, differ = compare_tokenizer(tokenizer, tokens, model.config.eos_token_id)
    return {
        "loss": loss,
        "tokens": n,
        "class": type(model).__name__,
        "no_missing_keys": not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"],
        "documents_compared": compared,
        "documents_that_differ": differ,
    }


def main():
    tokens, context = read_shards(sys.argv[1], "val"), int(sys.argv[2])
    print(json.dumps({run: examine(pathlib.Path(run), tokens, context) for run in sys.argv[3:]}))


main()
