#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizer/ with the Hugging Face `tokenizers` package: a text, tokenizers trained on it line by
line, and awkward texts with the ids that package gives them. Run from the repository's root; the output is committed.

    python3 tests/reference/make_tokenizer_fixture.py
"""
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = pathlib.Path("tests/fixtures/tokenizer")
EOT = "<|endoftext|>"
SPLITS = {
    "gpt2": r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "llama3": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+""",
}
VOCAB = {"gpt2": 700, "llama3": 640}


def training_text():
    """Words with a Zipf-like use, punctuation, numbers, and lines in other scripts; 24 KB."""
    rng = random.Random(20240520)
    onset, nucleus, coda = "b d f g l m n p r s t th st tr".split(), "a e i o u ea ou".split(), ["", "n", "s", "r", "nd"]
    words = ["".join(rng.choice(p) for _ in range(rng.randint(1, 3)) for p in (onset, nucleus, coda)) for _ in range(400)]
    words += ["it's", "don't", "we'll", "I've", "they're", "aaaaaa", "hahaha", "------", "1999", "3.14159", "x+=1;"]
    words += ["naïve", "Straße", "été", "мир", "война", "你好", "世界", "こんにちは", "שלום", "नमस्ते", "🙂", "👩‍👩‍👧"]
    lines, size = [], 0
    while size < 24000:
        n = rng.randint(0, 14)
        line = " ".join(words[min(int(rng.paretovariate(0.6)) - 1, len(words) - 1)] for _ in range(n))
        line = line.capitalize() + rng.choice([".", "!", "?", "...", ";", "", "  ", "\t", ' "quoted"'])
        lines.append(" " * rng.choice([0, 0, 0, 2, 4]) + line + rng.choice(["\n", "\n", "\n", "\r\n"]))
        size += len(lines[-1].encode())
    return "".join(lines)


CASES = [
    "", " ", "  ", "\n", "\n\n\n", "\t", "a", "Hello, world!", " Hello  world ", "trailing spaces   ", "   leading",
    "it's IT'S it'S 'S 's' 'll 'LL 're 've 'd 'm 't don''t ''s", "we'\u017f long s, 'K \u212a kelvin",
    "1 12 123 1234 12345 123456789", "3.14159e-10 0x1F 1,000,000", "\u00b2\u00b3\u00bd \u2167 \u0660\u0661\u0662\u0663 \u4e09",
    "tabs\t\tand\tspaces \t mixed\t \n next", "a\r\nb\r\n\r\nc\rd", "a \n b\n  \n c \r\n", "\r\r\n\n\r", "x \n\n\n  y",
    "punct!!!\n\n\nnext...\r\nlast?!\n", "(a)[b]{c}<d>/e\\f|g~h`i@j#k$l%m^n&o*p-q_r=s+t", "\"quotes\" \u201ccurly\u201d \u2018x\u2019s",
    "na\u00efve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m \ufb01 \ufb02 stra\u00dfe", "\u043c\u0438\u0440 \u0412\u041e\u0419\u041d\u0410 \u0438 \u043c\u0438\u0440",
    "\u4f60\u597d\u4e16\u754c\uff0c\u4eca\u5929\u3002", "\u3053\u3093\u306b\u3061\u306f\u3000\u4e16\u754c", "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \ud55c\uad6d\uc5b4 \u1112\u1161\u11ab", "\U0001f642\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd",
    "nbsp\u00a0here\u00a0\u00a0twice", "\u180eMongolian\u180e separator \u180e", "\u2003em\u2003\u2003space\u2009thin\u3000wide", "nel\u0085line\u2028sep\u2029par",
    "\x1c\x1d\x1e\x1f separators \x1c a", "zero\u200bwidth\u200c\u200d\u2060\ufeff", "\ufeffbyte order mark", "nul\x00inside\x00\x00", "\x01\x02\x7f\x80\x9f\xad controls",
    "private \ue000 \U000f0000 last \U0010ffff \uffff \ufdd0", EOT, f"a{EOT}b {EOT}{EOT}", "<|endoftext", "\u0120 \u010a stand-ins as text \u0143",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ab" * 200, "ha" * 33 + "!", "-" * 100, "=" * 33 + "\n", "." * 31 + " " * 33 + "x",
    " " * 200, " " * 63 + "\n" * 65, "\n \n \n \n", "thestanoudestrabethoune" * 40, "\U0001f642" * 50, "\u4f60\u597d" * 60, "\u0301\u0301\u0301 \u0301a",
    "def f(x):\n    return x+1  # one\n\n\nclass A:\n\tpass\n", "http://example.org/a?b=c&d=%20e#f", "\\n \\\\ \\\" \" ' `", "e\u0301" * 30, "A\u030a'\u0301s",
]


def make(name, lines):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLITS[name]), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB[name], special_tokens=[EOT], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.encode_special_tokens = True  # text is ordinary
    return tokenizer


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    text = training_text()
    (OUT / "train.txt").write_bytes(text.encode())
    lines = [line + "\n" for line in text.split("\n")[:-1]]
    cases = [{"text": t} for t in CASES]
    for name in SPLITS:
        tokenizer = make(name, lines)
        (OUT / f"{name}.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
        for case in cases:
            case[name] = tokenizer.encode(case["text"], add_special_tokens=False).ids
    body = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
    (OUT / "cases.json").write_text("[\n" + body + "\n]\n", encoding="ascii")


if __name__ == "__main__":
    main()
