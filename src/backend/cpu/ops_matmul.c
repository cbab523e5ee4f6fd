/* Matrix products: the output is cut into tiles, which workers take one after the other. */
#include "backend/cpu/cpu.h"

/* Multiples of what the kernels of the libraries are wide, so that cuts fall between their blocks. */
enum { GRAIN_M = 8, GRAIN_N = 32 };

enum { MIN_TILE_VALUES = 1 << 15 }; /* some tens of microseconds with the smallest models */

struct job {
    struct dlc_cpu *cpu;
    struct dlc_product whole;
    size_t tile_m, tile_n, n_n; /* n_n tiles side by side */
};

static void part_of_matrix(struct dlc_matrix *m, size_t i, size_t j)
{
    size_t at = m->transposed ? j * m->ld + i : i * m->ld + j;

    m->values = (const char *)m->values + at * dlc_dtype_size(m->dtype);
}

static size_t at_most(size_t n, size_t limit)
{
    return n < limit ? n : limit;
}

static void multiply_tile(const struct job *job, size_t tile, int worker)
{
    struct dlc_product part = job->whole;
    size_t m = tile / job->n_n * job->tile_m, n = tile % job->n_n * job->tile_n;

    part.c += m * part.ldc + n;
    part.M = at_most(part.M - m, job->tile_m);
    part.N = at_most(part.N - n, job->tile_n);
    part_of_matrix(&part.a, m, 0);
    part_of_matrix(&part.b, 0, n);
    job->cpu->lib->multiply(job->cpu, worker, &part);
}

static void multiply_tiles(void *arg, struct dlc_part part)
{
    const struct job *job = arg;

    for (; part.begin < part.end; part.begin++)
        multiply_tile(job, part.begin, part.worker);
}

static size_t n_pieces(size_t n, size_t piece)
{
    return (n + piece - 1) / piece;
}

/* n cut into about so many pieces of a multiple of `grain` each, but for the last. */
static size_t piece_of(size_t n, size_t n_cuts, size_t grain)
{
    return n_pieces(n_pieces(n, n_cuts), grain) * grain;
}

/* A multiple of the number of threads, so that equal threads finish together. Every tile copies its operands anew, and
 * measured, tiles of oneDNN lose a tenth once their edges are much shorter than the inner dimension: such products, the
 * gradients of weights above all, are cut into one tile a thread. */
static size_t n_tiles(const struct job *job)
{
    const struct dlc_product *p = &job->whole;
    size_t n_threads = (size_t)job->cpu->n_threads, least = p->K * p->K / 2;
    size_t each = p->M * p->N / (least > MIN_TILE_VALUES ? least : MIN_TILE_VALUES) / n_threads;

    each = each > 1 ? each : 1;
    return n_threads * at_most(each, DLC_PARTS_PER_THREAD);
}

/* The grid whose tiles have the smallest half perimeter: least to read for what is computed. */
static void choose_tiles(struct job *job)
{
    size_t M = job->whole.M, N = job->whole.N, n_all = n_tiles(job), best = SIZE_MAX;

    for (size_t n_m = 1; n_m <= n_all; n_m++) {
        size_t m = piece_of(M, n_m, GRAIN_M), n = piece_of(N, n_all / n_m, GRAIN_N), cost;

        if (n_all % n_m != 0)
            continue;
        /* A tile's work counts more than its edge: cutting 8 rows in two gains nothing. */
        cost = m * n * 64 + m + n;
        if (cost < best) {
            best = cost;
            job->tile_m = m;
            job->tile_n = n;
        }
    }
    job->n_n = n_pieces(N, job->tile_n);
}

static void multiply(dlc_backend *be, const struct dlc_product *whole)
{
    struct dlc_cpu *cpu = dlc_cpu_of(be);
    struct job job = { .cpu = cpu, .whole = *whole, .tile_m = whole->M, .tile_n = whole->N, .n_n = 1 };

    if (whole->K == 0 || whole->M == 0 || whole->N == 0) {
        if (!whole->accumulate)
            memset(whole->c, 0, whole->M * whole->N * sizeof *whole->c);
        return;
    }
    if (cpu->n_threads > 1 && whole->M * whole->N * whole->K > 32 * 1024) /* else shorter than waking a worker */
        choose_tiles(&job);
    dlc_pool_each(be->pool, multiply_tiles, &job, n_pieces(whole->M, job.tile_m) * job.n_n, 1);
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
