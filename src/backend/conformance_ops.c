#include "backend/conformance.h"
#include "backend/conformance_attention.h"

#include <math.h>
#include <string.h>

/* ---- matrix products: d = R N K accumulate ---- */

static int nt_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", d[3] ? ADD : OUT, d[0] * d[1], 1 };
    s[1] = (struct array_spec){ "x", IN16, d[0] * d[2], 1 };
    s[2] = (struct array_spec){ "w", IN16, d[1] * d[2], 1 };
    return 3;
}

static void nt_right(double **a, int32_t **index, const size_t *d)
{
    size_t R = d[0], N = d[1], K = d[2];

    (void)index;
    for (size_t r = 0; r < R; r++) {
        for (size_t n = 0; n < N; n++) {
            double sum = d[3] ? a[0][r * N + n] : 0;

            for (size_t k = 0; k < K; k++)
                sum += a[1][r * K + k] * a[2][n * K + k];
            a[0][r * N + n] = sum;
        }
    }
}

static void nt_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    be->ops->matmul_nt(be, a[0], a[1], a[2], d[0], d[1], d[2], bf16 ? DLC_BF16 : DLC_F32, (int)d[3]);
}

static int nn_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "dx", d[3] ? ADD : OUT, d[0] * d[2], 1 };
    s[1] = (struct array_spec){ "dy", IN16, d[0] * d[1], 1 };
    s[2] = (struct array_spec){ "w", IN16, d[1] * d[2], 1 };
    return 3;
}

static void nn_right(double **a, int32_t **index, const size_t *d)
{
    size_t R = d[0], N = d[1], K = d[2];

    (void)index;
    for (size_t r = 0; r < R; r++) {
        for (size_t k = 0; k < K; k++) {
            double sum = d[3] ? a[0][r * K + k] : 0;

            for (size_t n = 0; n < N; n++)
                sum += a[1][r * N + n] * a[2][n * K + k];
            a[0][r * K + k] = sum;
        }
    }
}

static void nn_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    be->ops->matmul_nn(be, a[0], a[1], a[2], d[0], d[1], d[2], bf16 ? DLC_BF16 : DLC_F32, (int)d[3]);
}

static int tn_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "dw", d[3] ? ADD : OUT, d[1] * d[2], 1 };
    s[1] = (struct array_spec){ "dy", IN16, d[0] * d[1], 1 };
    s[2] = (struct array_spec){ "x", IN16, d[0] * d[2], 1 };
    return 3;
}

static void tn_right(double **a, int32_t **index, const size_t *d)
{
    size_t R = d[0], N = d[1], K = d[2];

    (void)index;
    for (size_t n = 0; n < N; n++) {
        for (size_t k = 0; k < K; k++) {
            double sum = d[3] ? a[0][n * K + k] : 0;

            for (size_t r = 0; r < R; r++)
                sum += a[1][r * N + n] * a[2][r * K + k];
            a[0][n * K + k] = sum;
        }
    }
}

static void tn_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    be->ops->matmul_tn(be, a[0], a[1], a[2], d[0], d[1], d[2], bf16 ? DLC_BF16 : DLC_F32, (int)d[3]);
}

/* ---- embedding: d = R C V ---- */

static int embed_fwd_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", OUT, d[0] * d[1], 1 };
    s[1] = (struct array_spec){ "tokens", INDEX, d[0], .limit = d[2] };
    s[2] = (struct array_spec){ "table", IN, d[2] * d[1], 1 };
    return 3;
}

static void embed_fwd_right(double **a, int32_t **index, const size_t *d)
{
    for (size_t r = 0; r < d[0]; r++)
        for (size_t c = 0; c < d[1]; c++)
            a[0][r * d[1] + c] = a[2][(size_t)index[1][r] * d[1] + c];
}

static void embed_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->embed_fwd(be, a[0], a[1], a[2], d[0], d[1]);
}

static int embed_bwd_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "dtable", ADD, d[2] * d[1], 1 };
    s[1] = (struct array_spec){ "tokens", INDEX, d[0], .limit = d[2] };
    s[2] = (struct array_spec){ "dy", IN, d[0] * d[1], 1 };
    return 3;
}

static void embed_bwd_right(double **a, int32_t **index, const size_t *d)
{
    for (size_t r = 0; r < d[0]; r++)
        for (size_t c = 0; c < d[1]; c++)
            a[0][(size_t)index[1][r] * d[1] + c] += a[2][r * d[1] + c];
}

static void embed_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->embed_bwd(be, a[0], a[1], a[2], d[0], d[1]);
}

static const double eps = 1e-5f;

/* ---- rmsnorm: d = R C heads gap bf16; rows of x end with so many values that are not theirs, those of y with as many and
 * one more ---- */

/* Zero heads in the list are one. */
static struct dlc_norm norm_shape(const size_t *d)
{
    size_t heads = d[2] ? d[2] : 1;

    return (struct dlc_norm){ .R = d[0],
                              .heads = heads,
                              .C = d[1],
                              .x_row = heads * d[1] + d[3],
                              .y_row = heads * d[1] + (d[3] ? d[3] + 1 : 0),
                              .eps = (float)eps,
                              .y_type = d[4] ? DLC_BF16 : DLC_F32 };
}

static int rmsnorm_fwd_arrays(struct array_spec *s, const size_t *d)
{
    struct dlc_norm n = norm_shape(d);

    s[0] = (struct array_spec){ "y", d[4] ? OUT16 : d[3] ? ADD : OUT, n.R * n.y_row, 1 };
    s[1] = (struct array_spec){ "inv_rms", OUT, n.R * n.heads, 1 };
    s[2] = (struct array_spec){ "x", IN, n.R * n.x_row, 2, 0.3 };
    s[3] = (struct array_spec){ "g", IN, n.C, 0.5, 1 };
    return 4;
}

static void rms_of_rows(double *inv_rms, const double *all, const struct dlc_norm *n)
{
    for (size_t i = 0; i < n->R * n->heads; i++) {
        const double *x = all + i / n->heads * n->x_row + i % n->heads * n->C;
        double sum = 0;

        for (size_t c = 0; c < n->C; c++)
            sum += x[c] * x[c];
        inv_rms[i] = 1 / sqrt(sum / (double)n->C + eps);
    }
}

static void rmsnorm_fwd_right(double **a, int32_t **index, const size_t *d)
{
    struct dlc_norm n = norm_shape(d);

    (void)index;
    rms_of_rows(a[1], a[2], &n);
    for (size_t i = 0; i < n.R * n.heads; i++)
        for (size_t r = i / n.heads, at = i % n.heads * n.C, c = 0; c < n.C; c++)
            a[0][r * n.y_row + at + c] = a[2][r * n.x_row + at + c] * a[1][i] * a[3][c];
}

static void rmsnorm_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    struct dlc_norm n = norm_shape(d);

    (void)bf16;
    be->ops->rmsnorm_fwd(be, a[0], NULL, a[2], a[3], &n);
    be->ops->rmsnorm_fwd(be, a[0], a[1], a[2], a[3], &n);
}

static int rmsnorm_bwd_arrays(struct array_spec *s, const size_t *d)
{
    struct dlc_norm n = norm_shape(d);

    s[0] = (struct array_spec){ "dx", ADD, n.R * n.x_row, 1 };
    s[1] = (struct array_spec){ "dg", ADD, n.C, 1 };
    s[2] = (struct array_spec){ "dy", IN, n.R * n.y_row, 1 };
    s[3] = (struct array_spec){ "x", IN, n.R * n.x_row, 2, 0.3 };
    s[4] = (struct array_spec){ "inv_rms", IN, n.R * n.heads, 1 };
    s[5] = (struct array_spec){ "g", IN, n.C, 0.5, 1 };
    s[6] = (struct array_spec){ "rounded", OUT16, n.R * n.x_row, 1 };
    return d[4] ? 7 : 6;
}

static void rmsnorm_bwd_prepare(double **a, int32_t **index, const size_t *d)
{
    struct dlc_norm n = norm_shape(d);

    (void)index;
    rms_of_rows(a[4], a[3], &n);
}

static void rmsnorm_bwd_right(double **a, int32_t **index, const size_t *d)
{
    struct dlc_norm n = norm_shape(d);
    size_t C = n.C;

    (void)index;
    for (size_t row = 0; row < n.R * n.heads; row++) {
        size_t x_at = row / n.heads * n.x_row + row % n.heads * C, y_at = row / n.heads * n.y_row + row % n.heads * C;
        double *dx = a[0] + x_at, *dg = a[1], *dy = a[2] + y_at, *x = a[3] + x_at, s = a[4][row], *g = a[5];

        for (size_t c = 0; c < C; c++) {
            dg[c] += dy[c] * x[c] * s;
            for (size_t i = 0; i < C; i++) /* d y[i] / d x[c] */
                dx[c] += dy[i] * g[i] * ((i == c) * s - x[i] * x[c] * s * s * s / (double)C);
        }
    }
    if (d[4])
        memcpy(a[6], a[0], n.R * n.x_row * sizeof(double));
}

static void rmsnorm_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    struct dlc_norm n = norm_shape(d);

    (void)bf16;
    be->ops->rmsnorm_bwd(be, a[0], d[4] ? a[6] : NULL, a[1], a[2], a[3], a[4], a[5], &n);
}

/* ---- rope: d = R T pos0 heads D inverse gap ---- */

static int rope_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "x", ADD, d[0] * (d[3] * d[4] + d[6]), 1 };
    s[1] = (struct array_spec){ "table", IN, (d[2] + d[1]) * d[4], 1 };
    return 2;
}

static void rope_prepare(double **a, int32_t **index, const size_t *d)
{
    size_t half = d[4] / 2;

    (void)index;
    for (size_t p = 0; p < d[2] + d[1]; p++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)p * pow(10000, -(double)i / (double)half);

            a[1][2 * (p * half + i)] = cos(angle);
            a[1][2 * (p * half + i) + 1] = sin(angle);
        }
    }
}

static void rope_right(double **a, int32_t **index, const size_t *d)
{
    size_t half = d[4] / 2;

    (void)index;
    for (size_t r = 0; r < d[0]; r++) {
        for (size_t h = 0; h < d[3]; h++) {
            double *x = a[0] + r * (d[3] * d[4] + d[6]) + h * d[4], *angle = a[1] + (d[2] + r % d[1]) * d[4];

            for (size_t i = 0; i < half; i++) {
                double c = angle[2 * i], s = d[5] ? -angle[2 * i + 1] : angle[2 * i + 1], u = x[i], v = x[i + half];

                x[i] = u * c - v * s;
                x[i + half] = v * c + u * s;
            }
        }
    }
}

static void rope_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->rope(be, a[0], a[1], d[0], d[1], d[2], d[3], d[4], d[3] * d[4] + d[6], (int)d[5]);
}

/* ---- swiglu: d = R F gap in_place bf16; gap: values between the rows of gate and up ---- */

static int swiglu_fwd_arrays(struct array_spec *s, const size_t *d)
{
    size_t n = d[0] * d[1], n_wide = d[0] * (d[1] + d[2]);

    s[0] = (struct array_spec){ "y", d[4] ? OUT16 : OUT, n, 1 };
    s[1] = (struct array_spec){ "gate", IN, n_wide, 5 };
    s[2] = (struct array_spec){ "up", IN, n_wide, 1 };
    return 3;
}

static void swiglu_fwd_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    for (size_t i = 0; i < d[0] * d[1]; i++) {
        size_t at = i + i / d[1] * d[2];

        a[0][i] = a[1][at] / (1 + exp(-a[1][at])) * a[2][at];
    }
}

static void swiglu_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->swiglu_fwd(be, a[0], a[1], a[2], d[0], d[1], d[1] + d[2], d[4] ? DLC_BF16 : DLC_F32);
}

static int swiglu_bwd_arrays(struct array_spec *s, const size_t *d)
{
    size_t n = d[0] * d[1], n_wide = d[0] * (d[1] + d[2]);

    enum array_kind out = d[4] ? OUT16 : d[2] ? ADD : OUT;

    s[0] = (struct array_spec){ "dgate", out, n_wide, 1 };
    s[1] = (struct array_spec){ "dup", out, n_wide, 1 };
    s[2] = (struct array_spec){ "dy", IN, n, 1 };
    s[3] = (struct array_spec){ "gate", IN, n_wide, 5 };
    s[4] = (struct array_spec){ "up", IN, n_wide, 1 };
    s[5] = (struct array_spec){ "again", d[4] ? OUT16 : OUT, n, 1 };
    return 6;
}

static void swiglu_bwd_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    for (size_t i = 0; i < d[0] * d[1]; i++) {
        size_t at = i + i / d[1] * d[2];
        double x = a[3][at], sigma = 1 / (1 + exp(-x));

        a[0][at] = a[2][i] * a[4][at] * (sigma + x * sigma * (1 - sigma));
        a[1][at] = a[2][i] * x * sigma;
        a[5][i] = x * sigma * a[4][at];
    }
}

/* Also the promised way of writing over gate, up and dy. */
static void swiglu_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    size_t row = d[1] + d[2];

    (void)bf16;
    if (!d[3]) {
        be->ops->swiglu_bwd(be, a[0], a[1], a[5], a[2], a[3], a[4], d[0], d[1], row, d[4] ? DLC_BF16 : DLC_F32);
        return;
    }
    for (size_t r = 0; r < d[0]; r++) {
        memcpy((float *)a[0] + r * row, (float *)a[3] + r * row, d[1] * sizeof(float));
        memcpy((float *)a[1] + r * row, (float *)a[4] + r * row, d[1] * sizeof(float));
    }
    memcpy(a[5], a[2], d[0] * d[1] * sizeof(float));
    be->ops->swiglu_bwd(be, a[0], a[1], a[5], a[5], a[0], a[1], d[0], d[1], row, DLC_F32);
}

/* ---- cross_entropy: d = R V bf16; the second form also makes the gradient ---- */

static int cross_entropy_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "loss", OUT, d[0], 1 };
    s[1] = (struct array_spec){ "logits", IN, d[0] * d[1], 3 };
    s[2] = (struct array_spec){ "targets", INDEX, d[0], .limit = d[1] };
    return 3;
}

static int cross_entropy_grad_arrays(struct array_spec *s, const size_t *d)
{
    int n = cross_entropy_arrays(s, d);

    s[1].kind = ADD;
    s[n] = (struct array_spec){ "rounded", OUT16, d[0] * d[1], 1 };
    return d[2] ? n + 1 : n;
}

static double lse_of(const double *x, size_t V)
{
    double sum = 0;

    for (size_t v = 0; v < V; v++)
        sum += exp(x[v]);
    return log(sum);
}

static void cross_entropy_right(double **a, int32_t **index, const size_t *d)
{
    for (size_t r = 0; r < d[0]; r++)
        a[0][r] = lse_of(a[1] + r * d[1], d[1]) - a[1][r * d[1] + (size_t)index[2][r]];
}

static const float dscale = 0.37f;

static void cross_entropy_grad_right(double **a, int32_t **index, const size_t *d)
{
    cross_entropy_right(a, index, d);
    for (size_t r = 0; r < d[0]; r++) {
        double *x = a[1] + r * d[1], lse = lse_of(x, d[1]);

        for (size_t v = 0; v < d[1]; v++)
            x[v] = (exp(x[v] - lse) - (v == (size_t)index[2][r])) * dscale;
    }
    if (d[2])
        memcpy(a[3], a[1], d[0] * d[1] * sizeof(double));
}

static void cross_entropy_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->cross_entropy(be, a[0], a[1], NULL, a[2], d[0], d[1], 0);
}

static void cross_entropy_grad_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->cross_entropy(be, a[0], a[1], d[2] ? a[3] : NULL, a[2], d[0], d[1], dscale);
}

/* ---- flat: d = n ---- */

/* 8 significant bits, ties to even as rint does. */
double conformance_nearest_bf16(double x)
{
    int exponent;
    double fraction = frexp(x, &exponent);

    return ldexp(rint(fraction * 256), exponent - 8);
}

static int add_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", ADD, d[0], 1 };
    s[1] = (struct array_spec){ "x", IN, d[0], 1 };
    return 2;
}

static void add_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    for (size_t i = 0; i < d[0]; i++)
        a[0][i] += a[1][i];
}

static void add_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->add(be, a[0], a[1], d[0]);
}

static int to_bf16_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", OUT16, d[0], 1 };
    s[1] = (struct array_spec){ "x", IN, d[0], 1 };
    return 2;
}

static void to_bf16_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    for (size_t i = 0; i < d[0]; i++)
        a[0][i] = conformance_nearest_bf16(a[1][i]);
}

static void to_bf16_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->to_bf16(be, a[0], a[1], d[0]);
}

static int sum_squares_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "sum", OUT, 2, 1 };
    s[1] = (struct array_spec){ "x", IN, d[0], 1 };
    return 2;
}

/* As a float and what the float left out, so that the bits of the double are compared. */
static void sum_squares_right(double **a, int32_t **index, const size_t *d)
{
    double sum = 0;

    (void)index;
    for (size_t i = 0; i < d[0]; i++)
        sum += a[1][i] * a[1][i];
    a[0][0] = (float)sum;
    a[0][1] = sum - (float)sum;
}

static void sum_squares_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    double sum = be->ops->sum_squares(be, a[1], d[0]);

    (void)bf16;
    ((float *)a[0])[0] = (float)sum;
    ((float *)a[0])[1] = (float)(sum - (float)sum);
}

static int adamw_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "p", ADD, d[0], 1 };
    s[1] = (struct array_spec){ "m", ADD, d[0], 0.1 };
    s[2] = (struct array_spec){ "v", ADD, d[0], 0.0, 0.01 };
    s[3] = (struct array_spec){ "grad", IN, d[0], 1 };
    return 4;
}

static const struct dlc_adamw adam = { 0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.271f, 0.002997f, 0.7f };

static void adamw_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    for (size_t i = 0; i < d[0]; i++) {
        double *p = a[0] + i, *m = a[1] + i, *v = a[2] + i, g = a[3][i] * adam.grad_scale;

        *p -= (double)adam.lr * adam.weight_decay * *p;
        *m = adam.beta1 * *m + (1 - (double)adam.beta1) * g;
        *v = adam.beta2 * *v + (1 - (double)adam.beta2) * g * g;
        *p -= adam.lr * (*m / adam.bias1) / (sqrt(*v / adam.bias2) + adam.eps);
    }
}

static void adamw_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->adamw(be, a[0], a[1], a[2], a[3], d[0], &adam);
}

static int from_bf16_arrays(struct array_spec *s, const size_t *d)
{
    s[0] = (struct array_spec){ "y", OUT, d[0], 1 };
    s[1] = (struct array_spec){ "x", IN16, d[0], 1 };
    return 2;
}

static void from_bf16_right(double **a, int32_t **index, const size_t *d)
{
    (void)index;
    memcpy(a[0], a[1], d[0] * sizeof(double));
}

static void from_bf16_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    (void)bf16;
    be->ops->from_bf16(be, a[0], a[1], d[0]);
}

/* ---- matvec has the shapes of nt, w alone in bf16 ---- */

static int matvec_arrays(struct array_spec *s, const size_t *d)
{
    int n = nt_arrays(s, d);

    s[1].kind = IN;
    return n;
}

static void matvec_run(dlc_backend *be, void **a, const size_t *d, int bf16)
{
    be->ops->matvec(be, a[0], a[1], a[2], d[0], d[1], d[2], bf16 ? DLC_BF16 : DLC_F32, (int)d[3]);
}

/* ---- the list ---- */

/* clang-format off */

#define MATMUL_SHAPES                                                                                                  \
    {                                                                                                                  \
        { { 1, 1, 1, 0 }, "smallest", 0, 1 }, { { 3, 5, 7, 0 }, "less than a vector", 0, 1 },                          \
        { { 3, 5, 7, 1 }, "less than a vector, adding", 1, 0 }, { { 16, 16, 16, 0 }, "whole blocks", 1, 0 },           \
        { { 17, 33, 19, 1 }, "blocks and tails", 0, 0 }, { { 1, 300, 65, 0 }, "one row, as when generating", 0, 0 },   \
        { { 130, 67, 129, 0 }, "several parts a thread", 1, 0 },                                                       \
        { { 64, 600, 700, 1 }, "several panels of the inner dimension", 1, 0 },                                        \
        { { 520, 40, 24, 1 }, "many rows, narrow", 0, 0 },                                                             \
        { { 70, 1024, 24, 1 }, "columns of the weight gradient a page apart", 1, 0 },                                  \
    }

#define FLAT_SHAPES                                                                                                    \
    {                                                                                                                  \
        { { 1 }, "smallest" }, { { 16 }, "one vector" }, { { 37 }, "vectors and a tail" },                             \
        { { 100003 }, "several blocks and threads" },                                                                  \
    }

const struct op conformance_ops[] = {
    { "matmul_nt", 0, 4e-6, nt_arrays, NULL, nt_right, nt_run, MATMUL_SHAPES },
    { "matmul_nn", 0, 4e-6, nn_arrays, NULL, nn_right, nn_run, MATMUL_SHAPES },
    { "matmul_tn", 0, 4e-6, tn_arrays, NULL, tn_right, tn_run, MATMUL_SHAPES },
    { "embed_fwd", 1, 0, embed_fwd_arrays, NULL, embed_fwd_right, embed_fwd_run,
      { { { 1, 1, 1 }, "smallest", 0, 1 }, { { 9, 20, 5 }, "repeated tokens", 0, 1 },
        { { 100, 67, 300 }, "threads" } } },
    { "embed_bwd", 1, 1e-6, embed_bwd_arrays, NULL, embed_bwd_right, embed_bwd_run,
      { { { 1, 1, 1 }, "smallest", 0, 1 }, { { 9, 20, 5 }, "repeated tokens", 0, 1 },
        { { 100, 67, 30 }, "threads" } } },
    { "rmsnorm_fwd", 1, 1e-6, rmsnorm_fwd_arrays, NULL, rmsnorm_fwd_right, rmsnorm_fwd_run,
      { { { 1, 1 }, "smallest", 0, 1 }, { { 3, 16 }, "one vector", 0, 1 }, { { 3, 21 }, "vector and tail", 0, 1 },
        { { 200, 67 }, "threads" }, { { 2, 4096 }, "long rows" }, { { 3, 5, 2 }, "heads", 0, 1 },
        { { 90, 22, 3, 22 }, "heads that are part of a row, threads" },
        { { 333, 67, 1, 0, 1 }, "to bf16, several pieces" }, { { 2, 4096, 1, 0, 1 }, "to bf16, long rows" } } },
    { "rmsnorm_bwd", 1, 4e-6, rmsnorm_bwd_arrays, rmsnorm_bwd_prepare, rmsnorm_bwd_right, rmsnorm_bwd_run,
      { { { 1, 1 }, "smallest", 0, 1 }, { { 3, 16 }, "one vector", 0, 1 }, { { 3, 21 }, "vector and tail", 0, 1 },
        { { 200, 67 }, "threads, several blocks of rows" }, { { 9000, 6 }, "all blocks" },
        { { 2, 1100 }, "long rows" }, { { 3, 5, 2 }, "heads", 0, 1 }, { { 3, 5, 2, 3 }, "part of a row" },
        { { 90, 22, 3, 22 }, "heads that are part of a row, threads" }, { { 200, 67, 1, 0, 1 }, "also to bf16" } } },
    { "rope", 1, 1e-6, rope_arrays, rope_prepare, rope_right, rope_run,
      { { { 1, 1, 0, 1, 2, 0 }, "smallest" }, { { 6, 3, 2, 2, 16, 0 }, "one vector, two sequences, from position 2" },
        { { 6, 3, 2, 2, 16, 1 }, "inverse" }, { { 5, 5, 0, 3, 22, 1 }, "vector and tail" },
        { { 70, 35, 4, 3, 64, 0 }, "threads" }, { { 70, 35, 4, 3, 22, 0, 44 }, "gaps, threads" }, { { 2, 2, 1, 1, 258, 0 }, "long heads" } } },
    { "attention_fwd", 1, 4e-6, conformance_attention_fwd_arrays, NULL,
      conformance_attention_fwd_right, conformance_attention_fwd_run,
      { { { 1, 1, 1, 1, 2 }, "smallest", 0, 1 }, { { 2, 5, 4, 2, 6 }, "grouped heads, less than a vector", 0, 1 },
        { { 1, 16, 2, 1, 16 }, "one vector", 0, 0 }, { { 2, 70, 4, 2, 16 }, "two tiles" },
        { { 1, 64, 3, 3, 32 }, "one whole tile" }, { { 1, 200, 2, 1, 22 }, "four tiles, tails everywhere" },
        { { 1, 3, 2, 2, 130 }, "long heads" }, { { 2, 70, 4, 2, 22, 0, 1 }, "y in bf16", 1 }, { { 2, 3, 4, 2, 6, 5 }, "gaps", 0, 1 },
        { { 2, 70, 4, 2, 16, 32 }, "gaps, two tiles" } } },
    { "attention_bwd", 1, 8e-6, conformance_attention_bwd_arrays, conformance_attention_bwd_prepare,
      conformance_attention_bwd_right, conformance_attention_bwd_run,
      { { { 1, 1, 1, 1, 2 }, "smallest", 0, 1 }, { { 2, 5, 4, 2, 6 }, "grouped heads, less than a vector", 0, 1 },
        { { 1, 16, 2, 1, 16 }, "one vector", 0, 0 }, { { 2, 70, 4, 2, 16 }, "two tiles" },
        { { 1, 64, 3, 3, 32 }, "one whole tile" }, { { 1, 200, 2, 1, 22 }, "four tiles, tails everywhere" },
        { { 1, 3, 2, 2, 130 }, "long heads" }, { { 2, 70, 4, 2, 22, 0, 1 }, "y in bf16", 1 }, { { 2, 3, 4, 2, 6, 5 }, "gaps", 0, 1 },
        { { 2, 70, 4, 2, 16, 32 }, "gaps, two tiles" } } },
    { "swiglu_fwd", 1, 1e-6, swiglu_fwd_arrays, NULL, swiglu_fwd_right, swiglu_fwd_run,
      { { { 1, 1 }, "smallest", 0, 1 }, { { 1, 16 }, "one vector", 0, 1 }, { { 1, 37 }, "tail", 0, 1 },
        { { 3, 3337 }, "threads" }, { { 3, 5, 4 }, "gaps", 0, 1 }, { { 70, 131, 131 }, "gaps, threads" },
        { { 70, 131, 0, 0, 1 }, "to bf16" }, { { 3, 4999, 7, 0, 1 }, "to bf16, several pieces of a row" } } },
    { "swiglu_bwd", 1, 2e-6, swiglu_bwd_arrays, NULL, swiglu_bwd_right, swiglu_bwd_run,
      { { { 1, 1 }, "smallest", 0, 1 }, { { 1, 16 }, "one vector", 0, 1 }, { { 1, 37, 0, 1 }, "tail, in place", 0, 1 },
        { { 3, 3337 }, "threads" }, { { 3, 3337, 0, 1 }, "threads, in place" }, { { 3, 5, 4, 0 }, "gaps", 0, 1 },
        { { 70, 131, 131, 0 }, "gaps, threads" }, { { 70, 131, 131, 1 }, "gaps, threads, in place" },
        { { 70, 131, 0, 0, 1 }, "to bf16" }, { { 3, 4999, 0, 0, 1 }, "to bf16, several pieces of a row" } } },
    { "cross_entropy", 1, 2e-6, cross_entropy_arrays, NULL, cross_entropy_right, cross_entropy_run,
      { { { 1, 1 }, "smallest" }, { { 3, 16 }, "one vector" }, { { 5, 37 }, "tail" }, { { 9, 5003 }, "threads" } } },
    { "cross_entropy_grad", 1, 4e-6, cross_entropy_grad_arrays, NULL, cross_entropy_grad_right, cross_entropy_grad_run,
      { { { 1, 1 }, "smallest" }, { { 3, 16 }, "one vector" }, { { 5, 37 }, "tail" }, { { 9, 5003 }, "threads" },
        { { 9, 5003, 1 }, "also to bf16" } } },
    { "add", 1, 2e-7, add_arrays, NULL, add_right, add_run, FLAT_SHAPES },
    { "to_bf16", 1, 0, to_bf16_arrays, NULL, to_bf16_right, to_bf16_run, FLAT_SHAPES },
    { "sum_squares", 1, 1e-6, sum_squares_arrays, NULL, sum_squares_right, sum_squares_run, FLAT_SHAPES },
    { "adamw", 1, 2e-6, adamw_arrays, NULL, adamw_right, adamw_run, FLAT_SHAPES },
    { "matvec", 1, 4e-6, matvec_arrays, NULL, nt_right, matvec_run,
      { { { 1, 1, 1, 0 }, "smallest" }, { { 1, 3, 7, 0 }, "less than a vector", 1 }, { { 1, 5, 64, 1 }, "adding" },
        { { 1, 40, 64, 1 }, "adding", 1 }, { { 1, 700, 131, 0 }, "vectors and a tail, threads" },
        { { 1, 700, 131, 0 }, "vectors and a tail, threads", 1 }, { { 2, 300, 129, 0 }, "two rows" },
        { { 3, 300, 129, 1 }, "three rows, adding", 1 }, { { 4, 300, 192, 0 }, "four rows", 1 },
        { { 9, 150, 70, 0 }, "two times four and one" }, { { 11, 150, 70, 0 }, "two times four and three", 1 } } },
    { "attention_cached", 1, 4e-6, conformance_attention_cached_arrays, NULL,
      conformance_attention_cached_right, conformance_attention_cached_run,
      { { { 1, 0, 1, 1, 1, 2, 0 }, "smallest" }, { { 1, 3, 9, 4, 2, 6, 0 }, "grouped heads, less than a vector" },
        { { 1, 3, 9, 4, 2, 6, 1 }, "grouped heads, less than a vector", 1 },
        { { 1, 255, 256, 2, 2, 16, 0 }, "a whole share, a full cache" },
        { { 1, 256, 300, 3, 1, 64, 1 }, "a second share with one position", 1 },
        { { 1, 1000, 1024, 4, 2, 72, 0 }, "four shares" }, { { 1, 1000, 1024, 4, 2, 72, 1 }, "four shares", 1 },
        { { 5, 0, 8, 2, 1, 16, 0 }, "rows from the beginning" },
        { { 40, 100, 150, 4, 2, 40, 0 }, "tiles of rows behind others" },
        { { 40, 100, 150, 4, 2, 40, 1 }, "tiles of rows behind others", 1 },
        { { 3, 62, 70, 2, 2, 130, 1 }, "long heads, across blocks", 1 } } },
    { "from_bf16", 1, 0, from_bf16_arrays, NULL, from_bf16_right, from_bf16_run,
      { { { 1 }, "smallest", 1 }, { { 37 }, "vectors and a tail", 1 }, { { 10003 }, "threads", 1 } } },
};

/* clang-format on */

const size_t conformance_n_ops = sizeof conformance_ops / sizeof *conformance_ops;

const struct op *conformance_op(const char *name)
{
    for (size_t i = 0; i < conformance_n_ops; i++)
        if (strcmp(conformance_ops[i].name, name) == 0)
            return &conformance_ops[i];
    return NULL;
}
