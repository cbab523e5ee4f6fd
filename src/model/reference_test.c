#include "model/reference_test.h"

#include <math.h>

#include "base/mem.h"

/* y[N] = W[N][K] x[K] */
static void times(double *y, const double *W, const double *x, int N, int K)
{
    for (int n = 0; n < N; n++) {
        y[n] = 0;
        for (int k = 0; k < K; k++)
            y[n] += W[n * K + k] * x[k];
    }
}

static void norm(double *y, const double *x, const double *g, int n, double eps)
{
    double square = 0;

    for (int i = 0; i < n; i++)
        square += x[i] * x[i];
    for (int i = 0; i < n; i++)
        y[i] = x[i] / sqrt(square / n + eps) * g[i];
}

/* Turns the pair (x[i], x[i + D/2]), seen as a complex number, by pos * theta^(-2i/D). */
static void rotate(double *x, int pos, int D, double theta)
{
    for (int i = 0; i < D / 2; i++) {
        double angle = pos / pow(theta, 2.0 * i / D), re = x[i], im = x[i + D / 2];

        x[i] = re * cos(angle) - im * sin(angle);
        x[i + D / 2] = re * sin(angle) + im * cos(angle);
    }
}

/* One head's output for the newest of n positions. */
static void attend(double *y, const double *q, const double *keys, const double *values, int n, int stride, int D)
{
    double sum = 0;

    for (int i = 0; i < D; i++)
        y[i] = 0;
    for (int p = 0; p < n; p++) {
        double score = 0, weight;

        for (int i = 0; i < D; i++)
            score += q[i] * keys[p * stride + i];
        weight = exp(score / sqrt(D));
        sum += weight;
        for (int i = 0; i < D; i++)
            y[i] += weight * values[p * stride + i];
    }
    for (int i = 0; i < D; i++)
        y[i] /= sum;
}

struct work {
    double *x, *h, *q, *y, *gate, *up, *logits; /* of one position */
    double *keys, *values;                      /* [L][T][K*D] of one sequence */
};

static const double *next(const double **P, int n)
{
    const double *p = *P;

    *P += n;
    return p;
}

static void layer(struct work *w, const double **P, const struct dlc_model_config *c, double *keys, double *values,
                  int t)
{
    int C = c->d_model, D = c->head_dim, HD = c->n_heads * D, KD = c->n_kv_heads * D, F = c->d_ffn;
    const double *norm1 = next(P, C), *wq = next(P, HD * C), *wk = next(P, KD * C), *wv = next(P, KD * C),
                 *wo = next(P, C * HD), *q_norm = c->qk_norm ? next(P, D) : NULL,
                 *k_norm = c->qk_norm ? next(P, D) : NULL, *norm2 = next(P, C), *gate = next(P, F * C),
                 *up = next(P, F * C), *down = next(P, C * F);

    norm(w->h, w->x, norm1, C, c->norm_eps);
    times(w->q, wq, w->h, HD, C);
    times(keys + t * KD, wk, w->h, KD, C);
    times(values + t * KD, wv, w->h, KD, C);
    for (int k = 0; k < c->n_kv_heads; k++) {
        if (k_norm)
            norm(keys + t * KD + k * D, keys + t * KD + k * D, k_norm, D, c->norm_eps);
        rotate(keys + t * KD + k * D, t, D, c->rope_theta);
    }
    for (int i = 0; i < c->n_heads; i++) {
        int k = i / (c->n_heads / c->n_kv_heads);

        if (q_norm)
            norm(w->q + i * D, w->q + i * D, q_norm, D, c->norm_eps);
        rotate(w->q + i * D, t, D, c->rope_theta);
        attend(w->y + i * D, w->q + i * D, keys + k * D, values + k * D, t + 1, KD, D);
    }
    times(w->h, wo, w->y, C, HD);
    for (int i = 0; i < C; i++)
        w->x[i] += w->h[i];
    norm(w->h, w->x, norm2, C, c->norm_eps);
    times(w->gate, gate, w->h, F, C);
    times(w->up, up, w->h, F, C);
    for (int i = 0; i < F; i++)
        w->up[i] *= w->gate[i] / (1 + exp(-w->gate[i]));
    times(w->h, down, w->up, C, F);
    for (int i = 0; i < C; i++)
        w->x[i] += w->h[i];
}

/* Logits of position t, whose earlier positions have been done. */
static void position(struct work *w, const double *P, const struct dlc_model_config *c, int32_t token, int t, int T)
{
    int C = c->d_model, V = c->vocab_size, KD = c->n_kv_heads * c->head_dim;
    const double *embed = next(&P, V * C), *norm_f, *head;

    memcpy(w->x, embed + token * C, (size_t)C * sizeof *w->x);
    for (int l = 0; l < c->n_layers; l++)
        layer(w, &P, c, w->keys + l * T * KD, w->values + l * T * KD, t);
    norm_f = next(&P, C);
    head = c->tie_embeddings ? embed : next(&P, V * C);
    norm(w->h, w->x, norm_f, C, c->norm_eps);
    times(w->logits, head, w->h, V, C);
}

double reference_loss(double *logits, const struct dlc_model_config *c, const double *P, const int32_t *tokens,
                      const int32_t *targets, int B, int T)
{
    int C = c->d_model, V = c->vocab_size, HD = c->n_heads * c->head_dim, KD = c->n_kv_heads * c->head_dim;
    double loss = 0, *p = dlc_alloc((size_t)(2 * C + 2 * HD + 2 * c->d_ffn + V + 2 * c->n_layers * T * KD) * sizeof *p);
    struct work w = { .x = p, .h = p + C };

    w.q = w.h + C;
    w.y = w.q + HD;
    w.gate = w.y + HD;
    w.up = w.gate + c->d_ffn;
    w.logits = w.up + c->d_ffn;
    w.keys = w.logits + V;
    w.values = w.keys + c->n_layers * T * KD;
    for (int r = 0; r < B * T; r++) {
        double sum = 0;

        position(&w, P, c, tokens[r], r % T, T);
        for (int i = 0; i < V; i++)
            sum += exp(w.logits[i]);
        loss += log(sum) - w.logits[targets[r]];
        if (logits)
            memcpy(logits + r * V, w.logits, (size_t)V * sizeof *logits);
    }
    dlc_free(p);
    return loss;
}
