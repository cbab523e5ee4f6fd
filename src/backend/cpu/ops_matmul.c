/* Matrix products: the output is cut into a grid of parts, one a worker. */
#include "backend/cpu/cpu.h"

/* Multiples of what the kernels of the libraries are wide, so that cuts fall between their blocks. */
enum { GRAIN_M = 8, GRAIN_N = 32 };

struct job {
    struct dlc_cpu *cpu;
    struct dlc_product whole;
    int n_m, n_n; /* the grid; n_m * n_n is the number of workers */
};

static void part_of_matrix(struct dlc_matrix *m, size_t i, size_t j)
{
    size_t at = m->transposed ? j * m->ld + i : i * m->ld + j;

    m->values = (const char *)m->values + at * dlc_dtype_size(m->dtype);
}

static void multiply_part(void *arg, int worker, int n_workers)
{
    const struct job *job = arg;
    struct dlc_product part = job->whole;
    size_t m, m_end, n, n_end;

    (void)n_workers;
    dlc_pool_part(&m, &m_end, part.M, GRAIN_M, worker / job->n_n, job->n_m);
    dlc_pool_part(&n, &n_end, part.N, GRAIN_N, worker % job->n_n, job->n_n);
    if (m == m_end || n == n_end)
        return;
    part.c += m * part.ldc + n;
    part.M = m_end - m;
    part.N = n_end - n;
    part_of_matrix(&part.a, m, 0);
    part_of_matrix(&part.b, 0, n);
    job->cpu->lib->multiply(job->cpu, worker, &part);
}

/* The grid whose parts have the smallest half perimeter: least to read for what is computed. */
static void choose_grid(struct job *job, int n_workers)
{
    size_t best = SIZE_MAX;

    for (int n_m = 1; n_m <= n_workers; n_m++) {
        size_t m = (job->whole.M + GRAIN_M - 1) / GRAIN_M, n = (job->whole.N + GRAIN_N - 1) / GRAIN_N;
        int n_n = n_workers / n_m;
        size_t longest_m = (m + (size_t)n_m - 1) / (size_t)n_m * GRAIN_M;
        size_t longest_n = (n + (size_t)n_n - 1) / (size_t)n_n * GRAIN_N;
        size_t cost;

        if (n_m * n_n != n_workers)
            continue;
        /* A part's work counts more than its edge: cutting 8 rows in two gains nothing. */
        cost = longest_m * longest_n * 64 + longest_m + longest_n;
        if (cost < best) {
            best = cost;
            job->n_m = n_m;
            job->n_n = n_n;
        }
    }
}

static void multiply(dlc_backend *be, const struct dlc_product *whole)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct job job = { .cpu = cpu, .whole = *whole, .n_m = 1, .n_n = 1 };

    if (whole->K == 0 || whole->M == 0 || whole->N == 0) {
        if (!whole->accumulate)
            memset(whole->c, 0, whole->M * whole->N * sizeof *whole->c);
        return;
    }
    if (whole->M * whole->N * whole->K <= 32 * 1024) { /* shorter than waking a worker */
        multiply_part(&job, 0, 1);
        return;
    }
    choose_grid(&job, cpu->n_threads);
    dlc_pool_run(be->pool, multiply_part, &job);
}

static struct dlc_matrix matrix(const void *values, size_t ld, int transposed, dlc_dtype dtype)
{
    return (struct dlc_matrix){ values, ld, transposed, dtype };
}

static void matmul_nt(dlc_backend *be, float *y, const void *x, const void *w, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate)
{
    multiply(be, &(struct dlc_product){ y, N, matrix(x, K, 0, in), matrix(w, K, 1, in), R, N, K, accumulate });
}

static void matmul_nn(dlc_backend *be, float *dx, const void *dy, const void *w, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate)
{
    multiply(be, &(struct dlc_product){ dx, K, matrix(dy, N, 0, in), matrix(w, K, 0, in), R, K, N, accumulate });
}

static void matmul_tn(dlc_backend *be, float *dw, const void *dy, const void *x, size_t R, size_t N, size_t K,
                      dlc_dtype in, int accumulate)
{
    multiply(be, &(struct dlc_product){ dw, K, matrix(dy, N, 1, in), matrix(x, K, 0, in), N, K, R, accumulate });
}

void dlc_cpu_ops_matmul(struct dlc_ops *ops)
{
    ops->matmul_nt = matmul_nt;
    ops->matmul_nn = matmul_nn;
    ops->matmul_tn = matmul_tn;
}
