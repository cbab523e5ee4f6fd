"""The results as Markdown, which is also what the terminal gets."""

import statistics
from collections.abc import Sequence
from typing import Any

MB = 1e6
VARIANTS = {"eager": "PyTorch eager", "compile": "PyTorch compiled", "chunked": "PyTorch eager, loss in chunks"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = ["-" * width for width in widths]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths)] for row in [head, rule, *rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def spread(values: Sequence[float], form: str) -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def rates(side: dict[str, Any] | None) -> str:
    if side is None:
        return "not tried"
    form = ",.0f"
    return spread(side["turns"], form) if side["turns"] else side["note"]


def best(theirs: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    timed = [side for side in theirs.values() if side["turns"]]
    return max(timed, key=lambda side: side["median"]) if timed else None


def ratio(ours: dict[str, Any], rival: dict[str, Any] | None) -> str:
    """Of medians; in brackets lowest and highest of a turn."""
    if rival is None:
        return "-"
    turns = [a / b for a, b in zip(ours["turns"], rival["turns"])]
    return f"**{ours['median'] / rival['median']:.2f}** ({min(turns):.2f} to {max(turns):.2f})"


def utilisation(ours: dict[str, Any], rival: dict[str, Any] | None) -> str:
    theirs = f", {ours['mfu'] * rival['median'] / ours['median']:.0%}" if rival else ""
    return f"{ours['mfu']:.0%}{theirs} of {ours['mfu_roof']}"


def memory(ours: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> list[str]:
    measured = [side["peak_rss_bytes"] for side in theirs.values() if side["peak_rss_bytes"]]
    mine = ours["peak_rss_bytes"]
    if not measured:
        return [f"{mine / MB:,.0f}", "-", "-"]
    return [f"{mine / MB:,.0f}", f"{min(measured) / MB:,.0f}", f"**{mine / min(measured):.2f}**"]


def rival_of(case: dict[str, Any], cases: Sequence[dict[str, Any]]) -> tuple[dict[str, Any] | None, str]:
    """PyTorch's best for this shape. A machine without instructions for bf16 is faster in f32: then that is what bf16
    has to beat, and the words say so."""
    rival = best(case["theirs"])
    twin = case["name"].removesuffix("bf16") + "f32" if case["precision"] == "bf16" else ""
    for other in cases:
        f32 = best(other["theirs"]) if other["name"] == twin else None
        if f32 and (rival is None or rival["median"] < f32["median"]):
            return f32, " to its f32"
    return rival, ""


def case_row(case: dict[str, Any], cases: Sequence[dict[str, Any]], variants: Sequence[str]) -> list[str]:
    ours, theirs = case["ours"], case["theirs"]
    rival, which = rival_of(case, cases)
    return [case["name"], rates(ours), *(rates(theirs.get(v)) for v in variants), ratio(ours, rival) + which,
            utilisation(ours, rival), *memory(ours, theirs)]


def own_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    if "adamw" in result:
        a = result["adamw"]
        lines.append(f"- AdamW, {a['case']}: {a['seconds'] * 1e3:.1f} ms, {a['gbs']:.1f} GB/s, "
                     f"{a['gbs'] / a['roof_gbs']:.0%} of {a['roof_gbs']:.1f} GB/s in place.")
    if "islands" in result:
        i = result["islands"]
        one, two = statistics.median(i["one_island"]), statistics.median(i["two_islands"])
        turns = [b / a for a, b in zip(i["one_island"], i["two_islands"])]
        lines.append(f"- Islands, {i['case']} each: 2 x 1 thread {two:,.0f}, 1 x 2 threads {one:,.0f} tokens/s: "
                     f"**{two / one:.2f}** ({min(turns):.2f} to {max(turns):.2f}).")
    return lines


def machine_lines(result: dict[str, Any]) -> list[str]:
    m, p, v, plan = result["machine"], result["peaks"], result["versions"], result["plan"]
    bf16 = f" and bf16 {p['bf16_gflops']:.0f} GFLOP/s" if p["bf16_gflops"] else " GFLOP/s, no instructions for bf16"
    return [
        f"- {result['date']}. {m['cpu']}, {m['cores']} cores{', virtual' if m['virtual'] else ''}, "
        f"{' '.join(m['instruction_sets'])}; {m['memory_gib']} GiB; Linux {m['kernel']}; "
        f"load {m['load']:.1f} at the start.",
        f"- Peaks measured in this run, {p['threads']} threads: f32 {p['f32_gflops']:.0f}{bf16}; "
        f"read {p['read_gbs']:.1f}, in place {p['in_place_gbs']:.1f} GB/s.",
        f"- diloco: {'; '.join(result['diloco'])}.",
        f"- PyTorch {v['torch']} (MKL {v['mkl']}, oneDNN {v['onednn']}, {v['isa']}), Python {v['python']}; "
        f"{m['compiler']}.",
        f"- {plan['threads']} threads, {plan['turns']} turns of {plan['seconds']:g} s; median of turns, lowest to "
        f"highest in brackets. Ratios are to the better of PyTorch's, above 1: diloco is faster.",
        "- MFU is 6 x parameters x tokens/s over the peak. Memory in MB: the most a process had resident; PyTorch's is "
        "the least of its variants, of which 230 or so are Python and torch themselves.",
    ]


def same_model(result: dict[str, Any]) -> list[str]:
    if "loss_check" not in result:
        return []
    c = result["loss_check"]
    return [f"- Both compute the same model: on {c['tokens']} tokens the loss is {c['ours']:.6f} and "
            f"{c['theirs']:.6f}."]


def markdown(result: dict[str, Any]) -> str:
    variants = result["plan"]["variants"]
    head = ["case", "diloco, tokens/s", *(VARIANTS[v] for v in variants), "ratio", "MFU: diloco, PyTorch",
            "MB diloco", "MB PyTorch", "ratio"]
    parts = ["\n".join(machine_lines(result) + same_model(result))]
    if result["cases"]:
        parts.append(table(head, [case_row(case, result["cases"], variants) for case in result["cases"]]))
    notes = own_lines(result)
    return "\n\n".join(parts + (["\n".join(notes)] if notes else [])) + "\n"
