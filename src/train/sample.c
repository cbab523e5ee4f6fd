/* The next token from logits.
 *
 * A vocabulary has tens of thousands of tokens and a step of a small model takes milliseconds, so nothing sorts them
 * all. Without top-k and top-p the draw goes through the weights in the order of ids. Otherwise tokens are counted into
 * narrow buckets of equal logits: those above the bucket in which the limit is reached stay, those below go, and only
 * that bucket is sorted. */
#include "train/sample.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define STREAM 0x73616d706c65 /* "sample": apart from all other uses of the seed */

enum { N_BUCKETS = 4096, BLOCK = 256, LANES = 8 };

struct candidate {
    int32_t id;
    float logit, weight;
};

struct dlc_sampler {
    struct dlc_sampling settings;
    int vocab_size;
    float *weights;                /* [V rounded up to a block] exp((logit - largest) / temperature); 0: not finite */
    struct candidate *kept, *edge; /* [V] each */
    double bucket[N_BUCKETS];      /* how much of what is limited lies in it */
};

static size_t padded(int vocab_size)
{
    return ((size_t)vocab_size + BLOCK - 1) / BLOCK * BLOCK;
}

dlc_err dlc_sampler_create(dlc_sampler **out, const struct dlc_sampling *settings, int vocab_size)
{
    dlc_sampler *s;

    *out = NULL;
    if (!(settings->temperature >= 0 && isfinite(settings->temperature)))
        return dlc_fail(DLC_EUSAGE, "temperature is %g, must be 0 or more", settings->temperature);
    if (settings->top_k < 0)
        return dlc_fail(DLC_EUSAGE, "top-k is %d, must be 0 (all) or more", settings->top_k);
    if (!(settings->top_p > 0 && settings->top_p <= 1))
        return dlc_fail(DLC_EUSAGE, "top-p is %g, must be above 0 and at most 1", settings->top_p);
    s = dlc_calloc(1, sizeof *s);
    if (!s)
        return DLC_ENOMEM;
    s->settings = *settings;
    s->vocab_size = vocab_size;
    s->weights = dlc_calloc(padded(vocab_size), sizeof *s->weights);
    s->kept = dlc_calloc((size_t)vocab_size, sizeof *s->kept);
    s->edge = dlc_calloc((size_t)vocab_size, sizeof *s->edge);
    if (!s->weights || !s->kept || !s->edge) {
        dlc_sampler_destroy(s);
        return DLC_ENOMEM;
    }
    *out = s;
    return DLC_OK;
}

void dlc_sampler_destroy(dlc_sampler *s)
{
    if (!s)
        return;
    dlc_free(s->weights);
    dlc_free(s->kept);
    dlc_free(s->edge);
    dlc_free(s);
}

static bool is_finite(float x)
{
    return fabsf(x) <= FLT_MAX;
}

/* The lowest id of the largest; 0 when none is finite. */
static int32_t most_likely(const float *logits, int n)
{
    int32_t best = 0;
    float largest = -INFINITY;

    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > largest && is_finite(logits[i])) {
            largest = logits[i];
            best = i;
        }
    }
    return best;
}

/* e^x for -87 <= x <= 0, otherwise and for NaN 0; e^0 is 1. Relative error below 1e-6. Without branches and calls, so
 * that compilers turn the loop over it into vectors. */
static inline float exp_to_one(float x)
{
    float shifted = x * 1.44269504f + 12582912.f; /* the lowest bits are now round(x / ln 2) */
    float n = shifted - 12582912.f, r = x - n * 0.693145752f - n * 1.42860677e-6f, p, power;
    uint32_t bits, keep = 0u - (uint32_t)((x >= -87) & (x <= 0));

    p = 1 + r * (1 + r * (1.f / 2 + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r * (1.f / 720))))));
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    memcpy(&power, &bits, sizeof power);
    p *= power;
    memcpy(&bits, &p, sizeof bits);
    bits &= keep;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* Weights of all tokens; what is not finite becomes 0, as it lies below -87, above 0 or nowhere. */
static void weigh(dlc_sampler *s, const float *logits, float largest)
{
    double inverse = 1 / s->settings.temperature;
    float scale = inverse < 1e30 ? (float)inverse : 1e30f; /* finite: 0 times it has to be 0 */
    float *weights = s->weights;
    int n = s->vocab_size;

    for (int i = 0; i < n; i++)
        weights[i] = exp_to_one((logits[i] - largest) * scale);
}

static float sum_block(const float *x)
{
    float lane[LANES] = { 0 }, sum = 0;

    for (int i = 0; i < BLOCK; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += x[i + l];
    for (int l = 0; l < LANES; l++)
        sum += lane[l];
    return sum;
}

static double sum_weights(const dlc_sampler *s)
{
    double sum = 0;

    for (size_t i = 0; i < padded(s->vocab_size); i += BLOCK)
        sum += sum_block(s->weights + i);
    return sum;
}

/* The token at which the weights, summed by ids, pass `draw`; the last one with a weight when rounding leaves a rest.
 */
static int32_t draw_from_all(const dlc_sampler *s, double draw, int32_t most)
{
    size_t n = padded(s->vocab_size), block = 0;

    while (block + BLOCK < n && draw >= sum_block(s->weights + block)) {
        draw -= sum_block(s->weights + block);
        block += BLOCK;
    }
    for (size_t i = block; i < n; i++) {
        if (s->weights[i] > 0)
            most = (int32_t)i;
        draw -= s->weights[i];
        if (draw < 0)
            return most;
    }
    return most;
}

/* The finite logits whose weight is at least `least`. */
static size_t collect(dlc_sampler *s, const float *logits, double least)
{
    float limit = (float)least;
    size_t n = 0;

    for (int32_t i = 0; i < s->vocab_size; i++)
        if (s->weights[i] >= limit && is_finite(logits[i]))
            s->kept[n++] = (struct candidate){ i, logits[i], s->weights[i] };
    return n;
}

/* Likeliest first; equals by id, so that the order never depends on qsort. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* What a candidate uses of a limit: its weight, or 1 of a number. */
static double use_of(const struct candidate *c, bool by_weight)
{
    return by_weight ? (double)c->weight : 1;
}

struct buckets {
    double largest, scale;
};

/* Larger logits never lie in a later bucket. */
static size_t bucket_of(const struct buckets *b, const struct candidate *c)
{
    return (size_t)((b->largest - c->logit) * b->scale);
}

static struct buckets make_buckets(const struct candidate *c, size_t n)
{
    double largest = c[0].logit, smallest = c[0].logit;

    for (size_t i = 1; i < n; i++) {
        largest = c[i].logit > largest ? c[i].logit : largest;
        smallest = c[i].logit < smallest ? c[i].logit : smallest;
    }
    return (struct buckets){ largest, largest > smallest ? (N_BUCKETS - 1) / (largest - smallest) : 0 };
}

/* Leaves of the n kept candidates the fewest likeliest that use up `limit`; gives how many. */
static size_t keep_top(dlc_sampler *s, size_t n, double limit, bool by_weight)
{
    struct buckets b = make_buckets(s->kept, n);
    size_t last = 0, n_kept = 0, n_edge = 0;
    double used = 0;

    memset(s->bucket, 0, sizeof s->bucket);
    for (size_t i = 0; i < n; i++)
        s->bucket[bucket_of(&b, &s->kept[i])] += use_of(&s->kept[i], by_weight);
    while (last + 1 < N_BUCKETS && used + s->bucket[last] < limit)
        used += s->bucket[last++];
    for (size_t i = 0; i < n; i++) {
        size_t at = bucket_of(&b, &s->kept[i]);

        if (at < last)
            s->kept[n_kept++] = s->kept[i];
        else if (at == last)
            s->edge[n_edge++] = s->kept[i];
    }
    qsort(s->edge, n_edge, sizeof *s->edge, by_logit);
    for (size_t i = 0; i < n_edge && used < limit; i++) {
        used += use_of(&s->edge[i], by_weight);
        s->kept[n_kept++] = s->edge[i];
    }
    return n_kept;
}

static double sum_kept(const dlc_sampler *s, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += s->kept[i].weight;
    return sum;
}

static int32_t draw_from_kept(const dlc_sampler *s, size_t n, double draw)
{
    int32_t id = s->kept[0].id;

    for (size_t i = 0; i < n; i++) {
        if (s->kept[i].weight > 0)
            id = s->kept[i].id;
        draw -= s->kept[i].weight;
        if (draw < 0)
            return id;
    }
    return id;
}

/* All tokens with smaller weights than this together have less than the share that top-p leaves out. */
static double negligible(const dlc_sampler *s)
{
    return 0.5 * (1 - s->settings.top_p) * sum_weights(s) / s->vocab_size;
}

int32_t dlc_sampler_next(dlc_sampler *s, const float *logits, uint64_t position)
{
    bool top_k = s->settings.top_k > 0 && s->settings.top_k < s->vocab_size, top_p = s->settings.top_p < 1;
    int32_t most = most_likely(logits, s->vocab_size);
    double draw;
    size_t n;

    if (s->settings.temperature == 0 || !is_finite(logits[most]))
        return most;
    draw = dlc_rng_uniform(s->settings.seed, STREAM, position);
    weigh(s, logits, logits[most]);
    if (!top_k && !top_p)
        return draw_from_all(s, draw * sum_weights(s), most);
    n = collect(s, logits, top_k ? 0 : negligible(s));
    if (top_k)
        n = keep_top(s, n, s->settings.top_k, false);
    if (top_p)
        n = keep_top(s, n, s->settings.top_p * (top_k ? sum_kept(s, n) : sum_weights(s)), true);
    return draw_from_kept(s, n, draw * sum_kept(s, n));
}
