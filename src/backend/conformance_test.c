/* Every implementation of the backend table against the formulas in double precision, over the list of
 * conformance_ops.c.
 *
 * Each case runs with guards around aligned arrays and again with arrays that are only aligned to their element and end
 * at the end of their block (where a sanitizer sees a read too far); both must give the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "backend/conformance.h"
#include "backend/cpu/cpu.h"
#include "base/mem.h"
#include "base/rng.h"

enum { GUARD = 64 };
static const unsigned char guard_byte = 0xa5;

/* One case: the arrays of an operation in double and as the operation sees them. */
struct kase {
    const struct op *op;
    const struct shape *shape;
    int n_arrays;
    struct array_spec specs[MAX_ARRAYS];
    double *right[MAX_ARRAYS]; /* inputs; after `right` the expected outputs */
    int32_t *index[MAX_ARRAYS];
    unsigned char *block[MAX_ARRAYS]; /* what was allocated */
    void *a[MAX_ARRAYS];              /* what is handed over */
    unsigned char *before[MAX_ARRAYS];
};

static bool is_bf16(const struct kase *k, int i)
{
    enum array_kind kind = k->specs[i].kind;

    return kind == OUT16 || ((kind == IN16 || kind == ADD16) && k->shape->bf16);
}

static size_t array_bytes(const struct kase *k, int i)
{
    return k->specs[i].n * (is_bf16(k, i) ? 2 : 4);
}

/* A position in the values is a function of operation, array and index: the same numbers on every run. */
static void draw_values(struct kase *k, int i)
{
    const struct array_spec *s = &k->specs[i];

    k->right[i] = dlc_calloc(s->n, sizeof(double));
    k->index[i] = s->kind == INDEX ? dlc_calloc(s->n, sizeof(int32_t)) : NULL;
    for (size_t j = 0; j < s->n; j++) {
        if (s->kind == INDEX)
            k->index[i][j] = (int32_t)(dlc_rng_u64(1, (uint64_t)i, j) % s->limit);
        else
            k->right[i][j] = s->shift + s->scale * dlc_rng_normal(2, (uint64_t)i + s->n * 16, j);
    }
}

/* The inputs as the operation sees them, also in double. */
static void round_values(struct kase *k, int i)
{
    for (size_t j = 0; j < k->specs[i].n; j++) {
        float f = (float)k->right[i][j];

        k->right[i][j] = is_bf16(k, i) ? dlc_bf16_to_f32(dlc_f32_to_bf16(f)) : f;
    }
}

static void write_values(struct kase *k, int i, void *to)
{
    for (size_t j = 0; j < k->specs[i].n; j++) {
        float f = k->specs[i].kind == OUT ? NAN : (float)k->right[i][j];

        if (k->specs[i].kind == INDEX)
            ((int32_t *)to)[j] = k->index[i][j];
        else if (is_bf16(k, i))
            ((dlc_bf16 *)to)[j] = dlc_f32_to_bf16(f);
        else
            memcpy((char *)to + 4 * j, &f, 4);
    }
}

static void open_case(struct kase *k, const struct op *op, const struct shape *shape)
{
    *k = (struct kase){ .op = op, .shape = shape };
    k->n_arrays = op->arrays(k->specs, shape->d);
    for (int i = 0; i < k->n_arrays; i++)
        draw_values(k, i);
    if (op->prepare)
        op->prepare(k->right, k->index, shape->d);
    for (int i = 0; i < k->n_arrays; i++)
        round_values(k, i);
}

static void free_arrays(struct kase *k)
{
    for (int i = 0; i < k->n_arrays; i++) {
        dlc_free(k->block[i]);
        dlc_free(k->before[i]);
        k->block[i] = k->before[i] = NULL;
    }
}

static void close_case(struct kase *k)
{
    free_arrays(k);
    for (int i = 0; i < k->n_arrays; i++) {
        dlc_free(k->right[i]);
        dlc_free(k->index[i]);
    }
}

/* tight: aligned to the element only, nothing behind the array. Otherwise aligned to 64 bytes between guards. */
static void place_arrays(struct kase *k, bool tight)
{
    free_arrays(k);
    for (int i = 0; i < k->n_arrays; i++) {
        size_t n = array_bytes(k, i), element = is_bf16(k, i) ? 2 : 4;

        if (tight) {
            k->block[i] = dlc_alloc(element + n);
            k->a[i] = k->block[i] + element;
        } else {
            k->block[i] = dlc_alloc(n + 3 * GUARD);
            memset(k->block[i], guard_byte, n + 3 * GUARD);
            k->a[i] = k->block[i] + GUARD + (-((uintptr_t)k->block[i]) & 63);
        }
        write_values(k, i, k->a[i]);
        k->before[i] = dlc_alloc(n);
        memcpy(k->before[i], k->a[i], n);
    }
}

static void describe(char *text, size_t size, const struct kase *k, const dlc_backend *be)
{
    int n = snprintf(text, size, "%s [", k->op->name);

    for (int i = 0; i < MAX_DIMS; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%zu", i ? " " : "", k->shape->d[i]);
    snprintf(text + n, size - (size_t)n, "] (%s)%s, %s, products %s, %d threads", k->shape->why,
             k->shape->bf16 ? " bf16" : "", be->isa, be->matmul, dlc_pool_n_threads(be->pool));
}

static void check_guards(const struct kase *k, const char *text)
{
    for (int i = 0; i < k->n_arrays; i++) {
        const unsigned char *end = (const unsigned char *)k->a[i] + array_bytes(k, i);

        for (const unsigned char *p = k->block[i]; p < (const unsigned char *)k->a[i]; p++)
            if (*p != guard_byte)
                fail_msg("%s: wrote before %s", text, k->specs[i].name);
        for (const unsigned char *p = end; p < end + GUARD; p++)
            if (*p != guard_byte)
                fail_msg("%s: wrote behind %s", text, k->specs[i].name);
    }
}

static void check_inputs(const struct kase *k, const char *text)
{
    for (int i = 0; i < k->n_arrays; i++) {
        enum array_kind kind = k->specs[i].kind;

        if ((kind == IN || kind == IN16 || kind == INDEX) && memcmp(k->a[i], k->before[i], array_bytes(k, i)) != 0)
            fail_msg("%s: input %s was changed", text, k->specs[i].name);
    }
}

static double value_at(const struct kase *k, int i, size_t j)
{
    float f;

    if (is_bf16(k, i))
        return dlc_bf16_to_f32(((const dlc_bf16 *)k->a[i])[j]);
    memcpy(&f, (const char *)k->a[i] + 4 * j, 4);
    return f;
}

static bool is_output(const struct kase *k, int i)
{
    enum array_kind kind = k->specs[i].kind;

    return kind == OUT || kind == ADD || kind == OUT16 || kind == ADD16;
}

static void check_values(const struct kase *k, double **right, const char *text)
{
    for (int i = 0; i < k->n_arrays; i++) {
        double rms = 0;
        size_t n = k->specs[i].n;

        if (!is_output(k, i))
            continue;
        for (size_t j = 0; j < n; j++)
            rms += right[i][j] * right[i][j] / (double)n;
        rms = sqrt(rms);
        for (size_t j = 0; j < n; j++) {
            double got = value_at(k, i, j), limit = k->op->tolerance * (fabs(right[i][j]) + rms);

            if (k->specs[i].kind == OUT16 && k->op->tolerance > 0) /* what rounding may take: backend_test.c is exact */
                limit += fabs(right[i][j]) / 256;
            if (!(fabs(got - right[i][j]) <= limit))
                fail_msg("%s: %s[%zu] is %.9g, should be %.9g (off by %.2g, limit %.2g)", text, k->specs[i].name, j,
                         got, right[i][j], fabs(got - right[i][j]), limit);
        }
    }
}

/* All output bytes, for comparison. */
static unsigned char *outputs(const struct kase *k, size_t *n)
{
    unsigned char *all;

    *n = 0;
    for (int i = 0; i < k->n_arrays; i++)
        *n += is_output(k, i) ? array_bytes(k, i) : 0;
    all = dlc_alloc(*n);
    *n = 0;
    for (int i = 0; i < k->n_arrays; i++) {
        if (!is_output(k, i))
            continue;
        memcpy(all + *n, k->a[i], array_bytes(k, i));
        *n += array_bytes(k, i);
    }
    return all;
}

static void expected(const struct kase *k, double **right)
{
    for (int i = 0; i < k->n_arrays; i++) {
        right[i] = dlc_calloc(k->specs[i].n, sizeof(double));
        memcpy(right[i], k->right[i], k->specs[i].n * sizeof(double));
    }
    k->op->right(right, (int32_t **)k->index, k->shape->d);
}

/* Runs a case twice on one backend; gives the bytes of the outputs. */
static unsigned char *run_case(struct kase *k, double **right, dlc_backend *be, size_t *n)
{
    char text[300];
    unsigned char *first, *second;
    uint64_t allocs;

    describe(text, sizeof text, k, be);
    place_arrays(k, false);
    k->op->run(be, k->a, k->shape->d, k->shape->bf16);
    check_guards(k, text);
    check_inputs(k, text);
    check_values(k, right, text);
    first = outputs(k, n);
    place_arrays(k, true);
    allocs = dlc_mem_n_allocs();
    k->op->run(be, k->a, k->shape->d, k->shape->bf16);
    if (dlc_mem_n_allocs() != allocs)
        fail_msg("%s: allocated memory when called the second time", text);
    second = outputs(k, n);
    if (memcmp(first, second, *n) != 0)
        fail_msg("%s: other bits on the second call, with arrays aligned to their element only", text);
    dlc_free(second);
    return first;
}

static void run_op_on(const struct op *op, dlc_backend *be, dlc_backend *more_threads)
{
    for (int i = 0; i < MAX_SHAPES && op->shapes[i].why; i++) {
        struct kase k;
        double *right[MAX_ARRAYS];
        unsigned char *one, *many;
        size_t n;
        char text[300];

        open_case(&k, op, &op->shapes[i]);
        expected(&k, right);
        one = run_case(&k, right, be, &n);
        many = run_case(&k, right, more_threads, &n);
        describe(text, sizeof text, &k, more_threads);
        if (op->same_bits_any_threads && memcmp(one, many, n) != 0)
            fail_msg("%s: other bits than with one thread", text);
        dlc_free(one);
        dlc_free(many);
        for (int j = 0; j < k.n_arrays; j++)
            dlc_free(right[j]);
        close_case(&k);
    }
}

static void run_all_on(const char *isa, const char *matmul, bool products)
{
    dlc_backend *be, *more;

    if (dlc_cpu_create(&be, isa, matmul, 1) != DLC_OK)
        fail_msg("%s, %s: %s", isa, matmul, dlc_err_text());
    assert_int_equal(dlc_cpu_create(&more, isa, matmul, 3), DLC_OK);
    for (size_t i = 0; i < conformance_n_ops; i++)
        if (products == (strncmp(conformance_ops[i].name, "matmul", 6) == 0))
            run_op_on(&conformance_ops[i], be, more);
    dlc_backend_destroy(more);
    dlc_backend_destroy(be);
}

static void every_instruction_set_is_right(void **state)
{
    (void)state;
    for (int isa = DLC_ISA_REF; isa <= (int)dlc_cpu_best_isa(); isa++)
        run_all_on(dlc_cpu_isa_name((dlc_isa)isa), "ref", false);
}

static void every_matmul_library_is_right(void **state)
{
    (void)state;
    for (int isa = DLC_ISA_REF; isa <= (int)dlc_cpu_best_isa(); isa++) {
        const char *isa_name = dlc_cpu_isa_name((dlc_isa)isa);

        for (size_t i = 0; dlc_matmul_libs[i]; i++) {
            dlc_backend *be;

            if (dlc_cpu_create(&be, isa_name, dlc_matmul_libs[i]->name, 1) != DLC_OK)
                continue; /* not on this machine, or not with these instructions */
            dlc_backend_destroy(be);
            print_message("           products: %s with %s\n", dlc_matmul_libs[i]->name, isa_name);
            run_all_on(isa_name, dlc_matmul_libs[i]->name, true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_is_right),
        cmocka_unit_test(every_matmul_library_is_right),
    };

    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL);
}
