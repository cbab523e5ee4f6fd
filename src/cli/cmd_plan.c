/* diloco plan: what a set of links will give, before anything is trained. Reads what was asked for; src/plan answers.
 */
#include <stdio.h>

#include "base/file.h"
#include "base/units.h"
#include "cli/verbs.h"
#include "config/keys.h"
#include "config/rules.h"
#include "model/model.h"
#include "plan/paper_table.h"
#include "plan/plan.h"

#define DEFAULT_BATCH 16       /* of train.batch */
#define DEFAULT_OVERLAP 5      /* costs no loss that shows (arXiv 2501.18512) */
#define DEFAULT_FRAGMENTS 8    /* when the layers are not known */
#define MAX_FRAGMENTS_FOUND 32 /* the same */

struct args {
    struct dlc_common common;
    const char *preset, *step_time, *link, *link_up, *hub, *latency, *overhead;
    const char *codec, *codec_down, *svg, *paper_table;
    double params, flops, tokens, efficiency, find;
    int64_t layers, d_model, heads, d_ffn, vocab_size, context;
    int64_t islands, batch_tokens, outer_steps, fragments, overlap;
};

static const char *const codecs[] = { "f32", "bf16", "int8", "int4", "2bit", "topk", NULL };
static const char *const paper_tables[] = { "streaming", "wall-clock", NULL };

#define AT(field) offsetof(struct args, field)
#define TEXT(field) DLC_OPTION_TEXT, AT(field)
#define INT(field, low, high) DLC_OPTION_INT, AT(field), low, high
#define REAL(field, low, high) DLC_OPTION_REAL, AT(field), low, high

static const struct dlc_option options[] = {
    { "params", REAL(params, 1, 1e15), .value = "N", .help = "parameters of the model; or else a shape:" },
    { "preset", TEXT(preset), .value = "NAME", .help = "a shape that diloco train knows" },
    { "layers", INT(layers, 1, 1024), .value = "N", .help = "layers; with --params for the number of fragments only" },
    { "d-model", INT(d_model, 1, 65536), .value = "N", .help = "width" },
    { "heads", INT(heads, 1, 1024), .value = "N", .help = "attention heads; otherwise d-model / 64" },
    { "d-ffn", INT(d_ffn, 1, 262144), .value = "N", .help = "feed-forward width; otherwise 8/3 of d-model" },
    { "vocab-size", INT(vocab_size, 1, 1 << 24), .value = "N",
      .help = "tokens; otherwise 4096, or 32000 from a width of 512" },
    { "context", INT(context, 1, 1048576), .value = "N", .help = "tokens of a sequence; otherwise 1024" },
    { "islands", INT(islands, 1, 1000000), .value = "K", .fallback = "2", .help = "islands" },
    { "step-time", TEXT(step_time), .value = "TIME",
      .help = "compute of an inner step: 2.0 (seconds), 80ms; or else:" },
    { "flops", REAL(flops, 1, 1e24), .value = "X", .help = "FLOP/s that an island reaches in training" },
    { "batch-tokens", INT(batch_tokens, 1, 1e15), .value = "N",
      .help = "tokens of an island's inner step; with a shape otherwise 16 sequences" },
    { "tokens", REAL(tokens, 1, 1e18), .value = "N", .help = "budget of all islands together: how long does it take" },
    { "link", TEXT(link), .value = "RATE", .fallback = "100mbit", .help = "an island's link: 56kbit, 100mbit, 1gbit" },
    { "link-up", TEXT(link_up), .value = "RATE", .help = "towards the coordinator, if other than --link" },
    { "hub", TEXT(hub), .value = "RATE",
      .help = "the coordinator's link, which all islands share; otherwise fast enough" },
    { "latency", TEXT(latency), .value = "TIME", .fallback = "50ms", .help = "one way between island and coordinator" },
    { "efficiency", REAL(efficiency, 0.001, 1), .value = "X", .fallback = "0.94",
      .help = "part of a link that payload gets; 0.94 is TCP over Ethernet" },
    { "overhead", TEXT(overhead), .value = "TIME", .fallback = "0",
      .help = "an exchange's coding, merging and writing that no transfer hides" },
    { "outer.steps", INT(outer_steps, 1, DLC_PLAN_MAX_H), .value = "H", .fallback = "500",
      .help = "inner steps between exchanges" },
    { "fragments", INT(fragments, 1, DLC_PLAN_MAX_FRAGMENTS), .value = "P",
      .help = "of streaming; otherwise one for three layers" },
    { "overlap", INT(overlap, 0, DLC_PLAN_MAX_H), .value = "TAU",
      .help = "inner steps that hide an exchange; otherwise up to 5" },
    { "codec", TEXT(codec), .choices = codecs, .value = "NAME", .fallback = "f32",
      .help = "of DiLoCo, streaming and eager" },
    { "codec-down", TEXT(codec_down), .choices = codecs, .value = "NAME", .help = "the way down, if another" },
    { "find", REAL(find, 0.01, 0.9999), .value = "CU",
      .help = "search the shortest rounds that compute this part of the time: 0.95" },
    { "svg", TEXT(svg), .value = "FILE", .help = "draw utilisation against the link's rate" },
    { "paper-table", TEXT(paper_table), .choices = paper_tables, .value = "NAME",
      .help = "only print a published table, re-made" },
};

/* What follows from the model alone. */
struct plan_model {
    double n_params, flops_per_token;
    int n_layers;        /* 0: unknown */
    double batch_tokens; /* 0: unknown */
    double activation_bytes;
};

static dlc_err model_from_params(struct plan_model *m, const struct args *a)
{
    if (a->preset)
        return dlc_fail(DLC_EUSAGE, "--params and --preset both say how large the model is; give one");
    if (a->d_model || a->heads || a->d_ffn || a->vocab_size || a->context)
        return dlc_fail(DLC_EUSAGE, "--params says how large the model is; beside it only --layers means something");
    *m = (struct plan_model){
        .n_params = a->params,
        .flops_per_token = 6 * a->params,
        .n_layers = (int)a->layers,
        .batch_tokens = (double)a->batch_tokens,
    };
    return DLC_OK;
}

/* A width of its own brings its own feed-forward block and heads, unless they are given as well. */
static dlc_err set_width(struct dlc_model_config *shape, const struct args *a)
{
    int d_model = a->d_model ? (int)a->d_model : shape->d_model;
    int heads = a->heads ? (int)a->heads : a->d_model ? d_model / 64 : shape->n_heads;

    if (a->d_model)
        shape->d_ffn = (8 * d_model / 3 + 63) / 64 * 64;
    if (a->d_ffn)
        shape->d_ffn = (int)a->d_ffn;
    if (heads < 1)
        heads = 1;
    if (d_model % heads != 0)
        return dlc_fail(DLC_EUSAGE, "%d heads do not divide the width %d; give --heads", heads, d_model);
    if (a->d_model || a->heads)
        shape->head_dim = d_model / heads;
    shape->d_model = d_model;
    shape->n_heads = shape->n_kv_heads = heads;
    return DLC_OK;
}

static dlc_err shape_of(struct dlc_model_config *shape, const struct args *a)
{
    *shape = (struct dlc_model_config){
        .context = 1024, .rope_theta = 10000, .norm_eps = 1e-5, .tie_embeddings = true, .init_std = 0.02
    };
    if (a->preset)
        DLC_TRY(dlc_model_preset(shape, a->preset));
    else if (!a->layers || !a->d_model)
        return dlc_fail(DLC_EUSAGE, "the model is missing: --params N, --preset NAME, or --layers and --d-model");
    if (a->layers)
        shape->n_layers = (int)a->layers;
    if (a->context)
        shape->context = (int)a->context;
    DLC_TRY(set_width(shape, a));
    shape->vocab_size = a->vocab_size ? (int)a->vocab_size : shape->d_model < 512 ? 4096 : 32000;
    return dlc_model_config_check(shape);
}

static dlc_err model_from_shape(struct plan_model *m, const struct args *a)
{
    struct dlc_model_options o = { .training = true, .precision = DLC_PRECISION_F32 };
    struct dlc_model_config shape;
    struct dlc_model_memory memory;
    dlc_backend *be;
    int64_t batch;

    DLC_TRY(shape_of(&shape, a));
    batch = a->batch_tokens ? (a->batch_tokens + shape.context - 1) / shape.context : DEFAULT_BATCH;
    o.max_seq = shape.context;
    o.max_batch = dlc_rule_micro_batch(batch < 1000000 ? (int)batch : 1000000, shape.context);
    DLC_TRY(dlc_backend_create(&be, "ref", 1));
    dlc_model_memory_plan(&memory, &shape, &o, be);
    dlc_backend_destroy(be);
    *m = (struct plan_model){
        .n_params = (double)dlc_model_n_params(&shape),
        .flops_per_token = dlc_model_flops_per_token(&shape, shape.context),
        .n_layers = shape.n_layers,
        .batch_tokens = a->batch_tokens ? (double)a->batch_tokens : (double)DEFAULT_BATCH * shape.context,
        .activation_bytes = (double)memory.activations + (double)memory.scratch,
    };
    return DLC_OK;
}

static dlc_err step_seconds(double *out, const struct args *a, const struct plan_model *m)
{
    if (!a->step_time == (a->flops == 0))
        return dlc_fail(DLC_EUSAGE, "how fast an island is: give one of --step-time TIME and --flops X");
    if (a->step_time) {
        DLC_TRY(dlc_parse_duration(out, a->step_time, "--step-time"));
        return *out > 0 ? DLC_OK : dlc_fail(DLC_EUSAGE, "--step-time: an inner step takes longer than 0");
    }
    if (m->batch_tokens <= 0)
        return dlc_fail(DLC_EUSAGE, "--flops with --params needs --batch-tokens N, the tokens of an inner step");
    *out = m->flops_per_token * m->batch_tokens / a->flops;
    return DLC_OK;
}

static dlc_err read_link(struct dlc_plan_link *link, const struct args *a)
{
    *link = (struct dlc_plan_link){ .efficiency = a->efficiency };
    DLC_TRY(dlc_parse_rate(&link->down_bits_per_s, a->link, "--link"));
    link->up_bits_per_s = link->down_bits_per_s;
    if (a->link_up)
        DLC_TRY(dlc_parse_rate(&link->up_bits_per_s, a->link_up, "--link-up"));
    if (a->hub)
        DLC_TRY(dlc_parse_rate(&link->hub_bits_per_s, a->hub, "--hub"));
    DLC_TRY(dlc_parse_duration(&link->latency_s, a->latency, "--latency"));
    return dlc_parse_duration(&link->overhead_s, a->overhead, "--overhead");
}

static bool is_key(const char *name)
{
    return dlc_config_find_key(name, strlen(name)) != NULL;
}

/* The keys of the configuration say what train can do. */
static struct dlc_plan_abilities abilities(void)
{
    const struct dlc_key *codec = dlc_config_find_key("outer.codec", strlen("outer.codec"));
    struct dlc_plan_abilities can = {
        .fragments = is_key("outer.fragments"),
        .overlap = is_key("outer.overlap"),
        .eager = is_key("outer.eager"),
        .error_feedback = is_key("outer.error_feedback"),
    };
    const char *const *known = codec->list ? codec->list() : codec->choices;

    for (int i = 0; i < DLC_PLAN_N_CODECS; i++)
        for (const char *const *name = known; *name; name++)
            can.codec[i] = can.codec[i] || strcmp(*name, dlc_plan_codecs[i].name) == 0;
    return can;
}

/* Fragments and overlap that were not given fit the others: below them and H nothing has to be adjusted by hand. */
static void choose_schedule(struct dlc_plan_setup *s, const struct args *a, int n_layers)
{
    int fragments = n_layers > 0 ? (n_layers + 2) / 3 : DEFAULT_FRAGMENTS;

    s->H = (int)a->outer_steps;
    if (fragments < 2)
        fragments = 2;
    s->fragments = a->fragments ? (int)a->fragments : fragments < s->H ? fragments : s->H;
    s->overlap = (s->H - 1) / s->fragments;
    if (a->overlap >= 0)
        s->overlap = (int)a->overlap;
    else if (s->overlap > DEFAULT_OVERLAP)
        s->overlap = DEFAULT_OVERLAP;
}

static dlc_err make_setup(struct dlc_plan_setup *s, int *max_fragments, const struct args *a)
{
    struct plan_model m = { .n_params = 0 };

    DLC_TRY(a->params > 0 ? model_from_params(&m, a) : model_from_shape(&m, a));
    *max_fragments = m.n_layers > 0 ? m.n_layers + 1 : MAX_FRAGMENTS_FOUND; /* blocks, and the embeddings */
    *s = (struct dlc_plan_setup){
        .n_params = m.n_params,
        .n_islands = (int)a->islands,
        .tokens_per_step = m.batch_tokens,
        .n_tokens = a->tokens,
        .activation_bytes = m.activation_bytes,
        .up = dlc_plan_codec_find(a->codec),
        .down = dlc_plan_codec_find(a->codec_down ? a->codec_down : a->codec),
        .can = abilities(),
    };
    DLC_TRY(step_seconds(&s->step_s, a, &m));
    DLC_TRY(read_link(&s->link, a));
    choose_schedule(s, a, m.n_layers);
    if (a->tokens > 0 && s->tokens_per_step <= 0)
        return dlc_fail(DLC_EUSAGE, "--tokens with --params needs --batch-tokens N, the tokens of an inner step");
    return dlc_plan_check(s);
}

static dlc_err find(struct dlc_buf *out, const struct dlc_plan_setup *s, int max_fragments, const struct args *a)
{
    struct dlc_plan_found found[DLC_PLAN_MAX_FOUND];
    int n;

    dlc_plan_find(found, &n, s, a->find, max_fragments);
    if (n == 0)
        return dlc_fail(
            DLC_EFAIL,
            "nothing computes %.4g %% of the time over this link, with any codec and outer.steps up to %d; it "
            "takes a faster link, a smaller model or a longer inner step",
            100 * a->find, DLC_PLAN_FIND_MAX_H);
    return a->common.json ? dlc_plan_found_json(out, found, n, s, a->find)
                          : dlc_plan_found_text(out, found, n, s, a->find);
}

static dlc_err draw(const struct dlc_plan_setup *s, const char *path)
{
    struct dlc_buf picture = { 0 };
    dlc_err err = dlc_plan_svg(&picture, s);

    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, picture.data, picture.len);
    dlc_buf_fini(&picture);
    return err;
}

static dlc_err paper_table(struct dlc_buf *out, const struct args *a)
{
    if (strcmp(a->paper_table, "streaming") == 0)
        return a->common.json ? dlc_paper_streaming_json(out) : dlc_paper_streaming_text(out);
    return a->common.json ? dlc_paper_wallclock_json(out) : dlc_paper_wallclock_text(out);
}

static dlc_err answer(struct dlc_buf *out, const struct args *a)
{
    struct dlc_plan_setup s;
    int max_fragments;

    if (a->paper_table)
        return paper_table(out, a);
    DLC_TRY(make_setup(&s, &max_fragments, a));
    if (a->find > 0)
        DLC_TRY(find(out, &s, max_fragments, a));
    else
        DLC_TRY(a->common.json ? dlc_plan_json(out, &s) : dlc_plan_text(out, &s));
    return a->svg ? draw(&s, a->svg) : DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .overlap = -1 };
    struct dlc_buf out = { 0 };
    dlc_err err;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(dlc_options_words(&a.common, verb, 0, 0));
    err = answer(&out, &a);
    if (err == DLC_OK)
        fwrite(out.data, 1, out.len, stdout);
    dlc_buf_fini(&out);
    return err;
}

const struct dlc_verb dlc_verb_plan = {
    .name = "plan",
    .summary = "predicted time, bytes and compute utilisation for a model, islands and links",
    .usage = "--params N --islands K --step-time TIME --link RATE [--outer.steps H] [--find CU] [--svg FILE]",
    .text =
        "Compares data parallelism, DiLoCo, streaming, streaming with overlap in 4 bits, eager updates and top-k, for "
        "islands that\n"
        "exchange through a coordinator. What this version cannot train with is marked as planned. --find searches H, "
        "fragments,\n"
        "overlap and codec instead. Formulas and what is not modelled: docs/internals/planner.md.\n\n"
        "  diloco plan --params 1e9 --islands 8 --step-time 2.0 --link 100mbit --latency 80ms\n"
        "  diloco plan --preset 150m --islands 4 --flops 5e12 --tokens 3e9 --link 50mbit --link-up 10mbit --svg "
        "plan.svg\n"
        "  diloco plan --params 1e9 --layers 24 --islands 8 --step-time 2.0 --link 100mbit --find 0.95\n"
        "  diloco plan --paper-table streaming\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
