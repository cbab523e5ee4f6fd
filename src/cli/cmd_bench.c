/* diloco bench: what this machine can do, and how much of it our code gets. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "bench/bench.h"
#include "cli/verbs.h"
#include "config/memory.h"

struct args {
    struct dlc_common common;
    const char *only, *precision, *isa;
    struct dlc_texts presets;
    int64_t vocab, batch, seq, threads;
    double seconds;
};

static const char *const sections[] = { "peaks", "ops", "step", "decode", NULL }; /* in the order of their bits */
static const char *const precisions[] = { "f32", "bf16", NULL };

#define AT(field) offsetof(struct args, field)

static const struct dlc_option options[] = {
    { "only", DLC_OPTION_TEXT, AT(only), .choices = sections, .value = "PART", .help = "one part instead of all" },
    { "preset", DLC_OPTION_LIST, AT(presets), .value = "NAME",
      .help = "shape to train and generate with; may be given more than once (nano and small)" },
    { "vocab", DLC_OPTION_INT, AT(vocab), 0, 1 << 24, .value = "V", .fallback = "0",
      .help = "size of the vocabulary; 0: 4096, or 32000 from d_model 512" },
    { "batch", DLC_OPTION_INT, AT(batch), 0, 1 << 20, .value = "B", .fallback = "0",
      .help = "sequences of a step; 0: 16, or 4 from d_model 512" },
    { "seq", DLC_OPTION_INT, AT(seq), 0, 1 << 20, .value = "T", .fallback = "0",
      .help = "tokens of a sequence; 0: the preset's context, at most 256" },
    { "precision", DLC_OPTION_TEXT, AT(precision), .choices = precisions, .value = "NAME",
      .help = "one alone; else f32, and bf16 too where the processor has it" },
    { "threads", DLC_OPTION_INT, AT(threads), 0, 1024, .value = "N", .fallback = "0", .help = "0: all cores" },
    { "isa", DLC_OPTION_TEXT, AT(isa), .value = "NAME", .fallback = "auto",
      .help = "instruction set of the kernels; peaks are the machine's in any case" },
    { "seconds", DLC_OPTION_REAL, AT(seconds), 0.001, 86400, .value = "S", .fallback = "12",
      .help = "about how long in all; every model takes at least 5 steps" },
};

static bool is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

static unsigned sections_of(const struct args *a)
{
    for (unsigned i = 0; a->only && sections[i]; i++)
        if (is(a->only, sections[i]))
            return 1u << i;
    return DLC_BENCH_ALL;
}

static void fill_options(struct dlc_bench_options *o, const struct args *a)
{
    static const char *const default_presets[] = { "nano", "small" };
    int64_t available_mb = dlc_memory_available_mb();

    *o = (struct dlc_bench_options){
        .sections = sections_of(a),
        .presets = a->presets.n ? a->presets.items : default_presets,
        .n_presets = a->presets.n ? a->presets.n : 2,
        .vocab = (int)a->vocab,
        .batch = (int)a->batch,
        .seq = (int)a->seq,
        .f32 = is(a->precision, "f32"),
        .bf16 = is(a->precision, "bf16"),
        .isa = a->isa,
        .threads = (int)a->threads,
        .seconds = a->seconds,
        .available_bytes = available_mb > 0 ? available_mb << 20 : 0,
    };
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .only = NULL };
    struct dlc_bench_options o;
    struct dlc_bench_result r;
    struct dlc_buf out = { 0 };
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 0, 0));
    if (a.common.quiet)
        dlc_log_set_level(DLC_LOG_WARN);
    fill_options(&o, &a);
    err = dlc_bench_run(&r, &o);
    if (err == DLC_OK)
        err = a.common.json ? dlc_bench_json(&out, &r) : dlc_bench_text(&out, &r);
    if (err == DLC_OK)
        fwrite(out.data, 1, out.len, stdout);
    dlc_buf_fini(&out);
    dlc_bench_result_fini(&r);
    return err;
}

const struct dlc_verb dlc_verb_bench = {
    .name = "bench",
    .summary = "kernels and whole training steps on this machine, against its measured peak",
    .usage = "[--only peaks|ops|step|decode] [--preset NAME]... [--batch B] [--seq T] [--seconds S] [--json]",
    .text =
        "Needs no data: tokens and parameters are random. Run it while the machine is otherwise idle. The parts:\n\n"
        "  peaks   multiply-adds in f32 and bf16, and memory, as fast as this machine does them: the roofs of the "
        "rest\n"
        "  ops     every operation of a training step, timed inside it: its best call and its share of a roof\n"
        "  step    tokens/s, share of the peak (MFU = 6 x parameters x tokens/s / peak; attention's products are not\n"
        "          counted), memory resident and planned, and where the time of a step goes\n"
        "  decode  generation, one token at a time, against the bandwidth of reading its weights\n\n"
        "The roof of products and attention is arithmetic; of other operations it is the stream over memory that they\n"
        "resemble: read, triad (a = b + s c) or in_place (read and written), measured between the same steps, because\n"
        "memory is faster in some seconds than in others. Best of many repetitions everywhere; steps and tokens also "
        "have\n"
        "their median. With --only step nothing but the step's memory is touched.\n\n"
        "  diloco bench\n"
        "  diloco bench --only step --preset 124m --vocab 50257 --batch 4 --seq 256 --json\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
