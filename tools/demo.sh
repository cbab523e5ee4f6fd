#!/bin/sh
# The demo: one small model trained in three ways on the same text, side by side. `./do demo` builds and calls this.
#
#     TEXT=folder ./do demo      your own text (.txt, .jsonl, also .gz and .zst) instead of tools/corpus.sh's
#
# It can be stopped and started again: what is done is not done twice. Remove runs/demo to train anew.
set -eu

# What the three runs share. Steps are inner steps of every island, so `single` sees 1/islands of the others' text.
islands=4
steps=512
every=32 # H: DiLoCo exchanges once in so many steps
batch=8 # sequences of an island and step
preset=nano
vocab=2048
seed=1
more="--data.val_tokens 65536 --train.eval_every 4" # further keys for all three, "--section.key=value ..."

prompt=${PROMPT:-"In the beginning"}
diloco=${DILOCO:-build/diloco}

say() { printf '%s\n' "$*" >&2; }

# The number behind a key in one line of flat JSON on standard input; "-" when it is not there.
number() {
    awk -v key="\"$1\":" '{
        at = index($0, key)
        rest = at ? substr($0, at + length(key)) : ""
        sub(/^ */, "", rest)
        if (match(rest, /^[-+0-9.eE]+/)) { print substr(rest, 1, RLENGTH); found = 1; exit }
    } END { if (!found) print "-" }'
}

# The last value of a key in a run's metrics.
metric() { { grep -F "\"$2\":" "$1/metrics.jsonl" 2>/dev/null || true; } | tail -n 1 | number "$2"; }

prepare() { # sets data and runs
    if [ -n "${TEXT-}" ]; then
        [ -d "$TEXT" ] || { say "TEXT=$TEXT is not a folder"; exit 2; }
        name=text-$(printf '%s' "$TEXT" | cksum | cut -d ' ' -f 1)
        text=$TEXT
    else
        name=demo
        text=data/corpus
        sh tools/corpus.sh "$text"
    fi
    data=data/$name
    runs=runs/$name
    if [ ! -f "$data/meta.json" ]; then
        "$diloco" prepare "$text" --out "$data" --vocab-size "$vocab"
    fi
}

train() { # $1 method, $2 islands
    say ""
    say "== $1: $2 island(s), $steps steps of $batch sequences each"
    # shellcheck disable=SC2086
    "$diloco" train --data "$data" --out "$runs/$1" --method "$1" --islands "$2" --preset "$preset" \
        --steps "$steps" --outer.steps "$every" --batch "$batch" --seed "$seed" $more
}

row() { # $1 method: one line of the table, "method tokens perplexity bytes"
    perplexity=$("$diloco" eval "$runs/$1" --data "$data" --json | number ppl)
    printf '%s %s %s %s %s\n' "$1" "$(metric "$runs/$1" tokens)" "$perplexity" \
        "$(metric "$runs/$1" outer/bytes_up)" "$(metric "$runs/$1" outer/bytes_down)"
}

table() { # rows on standard input; bytes are those of all islands, both ways
    awk '
    function size(bytes) {
        if (bytes >= 1e9) return sprintf("%.2f GB", bytes / 1e9)
        if (bytes >= 1e6) return sprintf("%.1f MB", bytes / 1e6)
        return sprintf("%.0f kB", bytes / 1e3)
    }
    { method[NR] = $1; tokens[NR] = $2; perplexity[NR] = $3; bytes[NR] = $4 + $5; if ($1 == "dp") dp = $4 + $5 }
    END {
        printf "%-8s  %12s  %14s  %10s  %12s\n", "method", "tokens", "val perplexity", "sent", "less than dp"
        for (i = 1; i <= NR; i++) {
            ratio = method[i] == "single" ? "-" : bytes[i] > 0 ? sprintf("%.0f x", dp / bytes[i]) : "-"
            printf "%-8s  %12s  %14s  %10s  %12s\n", method[i], tokens[i],
                perplexity[i] == "-" ? "-" : sprintf("%.2f", perplexity[i]),
                method[i] == "single" ? "nothing" : size(bytes[i]), ratio
        }
    }'
}

started=$(date +%s)
prepare
train single 1
train dp "$islands"
train diloco "$islands"

{ row single && row dp && row diloco; } >"$runs/rows"
echo
echo "$steps steps of every island, perplexity on text held out of training:"
echo
table <"$runs/rows" | tee "$runs/table.txt"
echo
echo "single is one island alone; dp averages gradients at every step; diloco exchanges once in $every steps."
echo
echo "What the DiLoCo model writes:"
echo
"$diloco" generate "$runs/diloco" --prompt "$prompt" --tokens 120 --temperature 0.8 --seed 1 | sed 's/^/    /'
echo
say "The demo took $(($(date +%s) - started)) s."
echo "Next, a larger model on the same text:"
echo
echo "    $diloco train --data $data --out runs/mine --preset micro --islands $islands --steps 2000"
