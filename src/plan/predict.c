#include <math.h>

#include "plan/plan.h"

const struct dlc_plan_codec dlc_plan_codecs[DLC_PLAN_N_CODECS] = {
    { .name = "f32", .bits = 32 },
    { .name = "bf16", .bits = 16 },
    { .name = "int8", .bits = 8 },
    { .name = "int4", .bits = 4 },
    { .name = "2bit", .bits = 2, .error_feedback = true },
    /* 64 of a chunk of 4096, each a 12-bit index and a 2-bit value (arXiv 2508.15706) */
    { .name = "topk", .bits = 64 * 14 / 4096.0, .relayed = true, .error_feedback = true },
};

const struct dlc_plan_codec *dlc_plan_codec_find(const char *name)
{
    for (int i = 0; i < DLC_PLAN_N_CODECS; i++)
        if (strcmp(dlc_plan_codecs[i].name, name) == 0)
            return &dlc_plan_codecs[i];
    return NULL;
}

static dlc_err check_schedule(const struct dlc_plan_setup *s)
{
    if (s->H < 1 || s->H > DLC_PLAN_MAX_H)
        return dlc_fail(DLC_EUSAGE, "outer.steps is %d, must lie in 1..%d", s->H, DLC_PLAN_MAX_H);
    if (s->fragments < 1 || s->fragments > s->H || s->fragments > DLC_PLAN_MAX_FRAGMENTS)
        return dlc_fail(DLC_EUSAGE, "%d fragments: must lie in 1..%d, each is exchanged once in outer.steps = %d",
                        s->fragments, s->H < DLC_PLAN_MAX_FRAGMENTS ? s->H : DLC_PLAN_MAX_FRAGMENTS, s->H);
    if (s->overlap < 0 || (s->overlap > 0 && (int64_t)s->overlap * s->fragments >= s->H))
        return dlc_fail(DLC_EUSAGE,
                        "overlap %d must be below outer.steps / fragments = %d / %d = %.4g, so that one fragment "
                        "has arrived when the next leaves",
                        s->overlap, s->H, s->fragments, (double)s->H / s->fragments);
    return DLC_OK;
}

/* Written so that NaN fails. */
static dlc_err check_range(const char *name, double v, double low, double high)
{
    if (!(v >= low && v <= high))
        return dlc_fail(DLC_EUSAGE, "%s is %g, must lie in %g..%g", name, v, low, high);
    return DLC_OK;
}

dlc_err dlc_plan_check(const struct dlc_plan_setup *s)
{
    DLC_TRY(check_range("the number of parameters", s->n_params, 1, 1e18));
    DLC_TRY(check_range("the number of islands", s->n_islands, 1, 1e6));
    DLC_TRY(check_range("the time of an inner step, in seconds,", s->step_s, 1e-9, 1e9));
    DLC_TRY(check_range("the link's rate down", s->link.down_bits_per_s, 1e-9, 1e18));
    DLC_TRY(check_range("the link's rate up", s->link.up_bits_per_s, 1e-9, 1e18));
    DLC_TRY(check_range("the coordinator's rate", s->link.hub_bits_per_s, 0, 1e18));
    DLC_TRY(check_range("the latency", s->link.latency_s, 0, 1e6));
    DLC_TRY(check_range("the efficiency of the link", s->link.efficiency, 1e-3, 1));
    DLC_TRY(check_range("the overhead of an exchange", s->link.overhead_s, 0, 1e9));
    DLC_TRY(check_range("tokens of an inner step", s->tokens_per_step, 0, 1e15));
    DLC_TRY(check_range("the token budget", s->n_tokens, 0, 1e18));
    if (s->n_tokens > 0 && s->tokens_per_step <= 0)
        return dlc_fail(DLC_EUSAGE, "a budget of tokens needs the tokens of an inner step");
    return check_schedule(s);
}

void dlc_plan_ways(struct dlc_plan_way out[DLC_PLAN_N_WAYS], const struct dlc_plan_setup *s)
{
    const struct dlc_plan_codec *f32 = dlc_plan_codec_find("f32"), *bf16 = dlc_plan_codec_find("bf16"),
                                *int4 = dlc_plan_codec_find("int4"), *topk = dlc_plan_codec_find("topk");
    int i = 0;

    out[i++] = (struct dlc_plan_way){ "data parallel", DLC_PLAN_DP, 1, 1, 0, f32, f32 };
    out[i++] = (struct dlc_plan_way){ "data parallel", DLC_PLAN_DP, 1, 1, 0, bf16, bf16 };
    out[i++] = (struct dlc_plan_way){ "DiLoCo", DLC_PLAN_DILOCO, s->H, 1, 0, s->up, s->down };
    out[i++] = (struct dlc_plan_way){ "streaming", DLC_PLAN_DILOCO, s->H, s->fragments, 0, s->up, s->down };
    out[i++] =
        (struct dlc_plan_way){ "streaming + overlap", DLC_PLAN_DILOCO, s->H, s->fragments, s->overlap, int4, int4 };
    out[i++] = (struct dlc_plan_way){ "eager", DLC_PLAN_EAGER, s->H, 1, 0, s->up, s->down };
    out[i++] = (struct dlc_plan_way){ "top-k", DLC_PLAN_DILOCO, s->H, 1, 0, topk, topk };
}

bool dlc_plan_trainable(const struct dlc_plan_way *way, const struct dlc_plan_abilities *can)
{
    if (way->kind == DLC_PLAN_DP) /* gradients travel as they are */
        return way->up->bits == 32 && way->down->bits == 32;
    return can->codec[way->up - dlc_plan_codecs] && can->codec[way->down - dlc_plan_codecs] &&
           (can->fragments || way->fragments == 1) && (can->overlap || way->overlap == 0) &&
           (can->eager || way->kind != DLC_PLAN_EAGER) && (can->error_feedback || !way->up->error_feedback);
}

/* One exchange of a way: how many inner steps lie between two, what hides it, and its cost. */
struct exchange {
    double n_steps;
    double hidden_s;
    double up_bytes, down_bytes; /* of an island */
    double transfer_s, fixed_s;  /* the part that faster links shorten, and the other */
};

static double island_rate(double link_bits_per_s, const struct dlc_plan_setup *s)
{
    double share = s->link.hub_bits_per_s / s->n_islands;

    return (share > 0 && share < link_bits_per_s ? share : link_bits_per_s) * s->link.efficiency;
}

static struct exchange exchange_of(const struct dlc_plan_way *way, const struct dlc_plan_setup *s)
{
    double n = s->n_params / way->fragments;
    struct exchange x = {
        .n_steps = way->kind == DLC_PLAN_DP ? 1 : (double)way->H / way->fragments,
        .up_bytes = n * way->up->bits / 8,
        .down_bytes = n * way->down->bits / 8 * (way->down->relayed ? s->n_islands : 1),
        .fixed_s = 2 * s->link.latency_s + s->link.overhead_s / way->fragments,
    };

    x.hidden_s = (way->kind == DLC_PLAN_EAGER ? x.n_steps : way->overlap) * s->step_s;
    x.transfer_s = 8 * x.up_bytes / island_rate(s->link.up_bits_per_s, s) +
                   8 * x.down_bytes / island_rate(s->link.down_bits_per_s, s);
    return x;
}

double dlc_plan_utilisation(const struct dlc_plan_way *way, const struct dlc_plan_setup *s, double factor)
{
    struct exchange x = exchange_of(way, s);
    double work = x.n_steps * s->step_s;

    return work / (work + fmax(0, x.transfer_s / factor + x.fixed_s - x.hidden_s));
}

double dlc_plan_factor_for(const struct dlc_plan_way *way, const struct dlc_plan_setup *s, double utilisation)
{
    struct exchange x = exchange_of(way, s);
    double may_take = x.n_steps * s->step_s * (1 / utilisation - 1) + x.hidden_s - x.fixed_s;

    return may_take > 0 ? x.transfer_s / may_take : INFINITY;
}

/* Parameters, gradients and AdamW's two moments; what the round began with; what some ways add; and the two messages.
 */
static double memory_bytes(const struct dlc_plan_way *way, const struct exchange *x, const struct dlc_plan_setup *s)
{
    double copies = 4;

    if (way->kind != DLC_PLAN_DP)
        copies += 1;
    if (way->kind == DLC_PLAN_EAGER) /* its own last outer gradient, whose part in the mean is replaced */
        copies += 1;
    if (way->up->error_feedback)
        copies += 1;
    return 4 * copies * s->n_params + x->up_bytes + x->down_bytes + s->activation_bytes;
}

void dlc_plan_predict(struct dlc_plan_prediction *out, const struct dlc_plan_way *way, const struct dlc_plan_setup *s)
{
    struct exchange x = exchange_of(way, s);
    double window = x.hidden_s > 0 ? x.hidden_s : s->step_s, rounds = s->H / x.n_steps;
    double exchange_s = x.transfer_s + x.fixed_s;

    *out = (struct dlc_plan_prediction){
        .utilisation = dlc_plan_utilisation(way, s, 1),
        .exchange_s = exchange_s,
        .stall_s = fmax(0, exchange_s - x.hidden_s),
        .up_bytes = rounds * x.up_bytes,
        .down_bytes = rounds * x.down_bytes,
        .peak_bits_per_s = 8 * (x.up_bytes + x.down_bytes) / window / s->link.efficiency,
        .link_for_95_bits_per_s = s->link.down_bits_per_s * dlc_plan_factor_for(way, s, 0.95),
        .budget_s = NAN,
        .memory_bytes = memory_bytes(way, &x, s),
    };
    out->step_s = s->step_s / out->utilisation;
    if (s->n_tokens > 0)
        out->budget_s = s->n_tokens / (s->n_islands * s->tokens_per_step) * out->step_s;
}

double dlc_plan_hub_memory_bytes(const struct dlc_plan_way *way, const struct dlc_plan_setup *s)
{
    return 3 * 4 * s->n_params + s->n_islands * exchange_of(way, s).up_bytes;
}
