#include "train/sample.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"

#define STREAM 0x73616d706c65 /* "sample": apart from all other uses of the seed */

struct candidate {
    int32_t id;
    float logit;
    double weight; /* exp((logit - largest) / temperature) */
};

struct dlc_sampler {
    struct dlc_sampling settings;
    int vocab_size;
    struct candidate *candidates;
};

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
    s->candidates = dlc_calloc((size_t)vocab_size, sizeof *s->candidates);
    if (!s->candidates) {
        dlc_free(s);
        return DLC_ENOMEM;
    }
    *out = s;
    return DLC_OK;
}

void dlc_sampler_destroy(dlc_sampler *s)
{
    if (!s)
        return;
    dlc_free(s->candidates);
    dlc_free(s);
}

static int32_t most_likely(const float *logits, int n)
{
    int32_t best = 0;
    float largest = -INFINITY;

    for (int32_t i = 0; i < n; i++) {
        if (isfinite(logits[i]) && logits[i] > largest) {
            largest = logits[i];
            best = i;
        }
    }
    return best;
}

/* Likeliest first; equals by id, so that the order never depends on qsort. */
static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

static size_t collect(struct candidate *out, const float *logits, int n)
{
    size_t count = 0;

    for (int32_t i = 0; i < n; i++)
        if (isfinite(logits[i]))
            out[count++] = (struct candidate){ .id = i, .logit = logits[i] };
    return count;
}

/* Weights of the first n (sorted); returns their sum. */
static double weigh(struct candidate *c, size_t n, double temperature)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        c[i].weight = exp(((double)c[i].logit - (double)c[0].logit) / temperature);
        sum += c[i].weight;
    }
    return sum;
}

/* How many of n reach the share top_p of `sum`, and their sum. */
static size_t nucleus(double *kept, const struct candidate *c, size_t n, double sum, double top_p)
{
    *kept = 0;
    for (size_t i = 0; i < n; i++) {
        *kept += c[i].weight;
        if (*kept >= top_p * sum)
            return i + 1;
    }
    return n;
}

int32_t dlc_sampler_next(dlc_sampler *s, const float *logits, uint64_t position)
{
    struct candidate *c = s->candidates;
    double sum, draw;
    size_t n;

    if (s->settings.temperature == 0)
        return most_likely(logits, s->vocab_size);
    n = collect(c, logits, s->vocab_size);
    if (n == 0)
        return 0;
    qsort(c, n, sizeof *c, by_logit);
    if (s->settings.top_k > 0 && (size_t)s->settings.top_k < n)
        n = (size_t)s->settings.top_k;
    sum = weigh(c, n, s->settings.temperature);
    n = nucleus(&sum, c, n, sum, s->settings.top_p);
    draw = dlc_rng_uniform(s->settings.seed, STREAM, position) * sum;
    for (size_t i = 0; i + 1 < n; i++) {
        draw -= c[i].weight;
        if (draw < 0)
            return c[i].id;
    }
    return c[n - 1].id;
}
