/* oneDNN: f32 by its sgemm; bf16 by matmul primitives where the machine has instructions for bf16, elsewhere by the
 * builtin product, which converts while it packs. "onednn-primitive" does f32 by primitives too: a test of that path
 * for machines without bf16.
 *
 * A primitive is made once for a shape and kept by the worker that made it. It is made and run in that worker's thread,
 * which has told OpenMP to use one thread. */
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>

#include "backend/cpu/cpu.h"
#include "base/mem.h"

enum { N_SLOTS = 256, N_PROBES = 8 }; /* a model has some 20 shapes */

struct key {
    size_t M, N, K, lda, ldb, ldc;
    int a_transposed, b_transposed, accumulate, bf16;
};

struct slot {
    struct key key;
    int used;
    dnnl_primitive_t primitive;
    dnnl_memory_t memories[3]; /* a, b, c */
};

struct onednn {
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* one a worker */
    struct slot *slots;     /* [worker][N_SLOTS] */
    int f32_by_primitives, has_bf16;
    void (*set_omp_threads)(int);
};

static void free_slot(struct slot *s)
{
    for (int i = 0; i < 3; i++)
        if (s->memories[i])
            dnnl_memory_destroy(s->memories[i]);
    if (s->primitive)
        dnnl_primitive_destroy(s->primitive);
    memset(s, 0, sizeof *s);
}

/* ---- what differs between versions 2 and 3 of the library ---- */

#if DNNL_VERSION_MAJOR >= 3

typedef dnnl_memory_desc_t desc;

static dnnl_status_t make_desc(desc *out, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(out, 2, dims, type, strides);
}

static void free_desc(desc *d)
{
    if (*d)
        dnnl_memory_desc_destroy(*d);
}

static const_dnnl_memory_desc_t desc_of(const desc *d)
{
    return *d;
}

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *out, const desc *d, dnnl_primitive_attr_t attr,
                                         dnnl_engine_t engine)
{
    return dnnl_matmul_primitive_desc_create(out, engine, d[0], d[1], NULL, d[2], attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef);
}

#else

typedef dnnl_memory_desc_t desc;

static dnnl_status_t make_desc(desc *out, const dnnl_dims_t dims, dnnl_data_type_t type, const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

static void free_desc(desc *d)
{
    (void)d;
}

static const desc *desc_of(const desc *d)
{
    return d;
}

static dnnl_status_t make_primitive_desc(dnnl_primitive_desc_t *out, const desc *d, dnnl_primitive_attr_t attr,
                                         dnnl_engine_t engine)
{
    dnnl_matmul_desc_t matmul;
    dnnl_status_t status = dnnl_matmul_desc_init(&matmul, &d[0], &d[1], NULL, &d[2]);

    return status == dnnl_success ? dnnl_primitive_desc_create(out, &matmul, attr, engine, NULL) : status;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1);
}

#endif

/* ---- primitives ---- */

static dnnl_status_t make_descs(desc *d, const struct key *k)
{
    dnnl_dim_t M = (dnnl_dim_t)k->M, N = (dnnl_dim_t)k->N, K = (dnnl_dim_t)k->K;
    dnnl_dim_t lda = (dnnl_dim_t)k->lda, ldb = (dnnl_dim_t)k->ldb, ldc = (dnnl_dim_t)k->ldc;
    dnnl_data_type_t in = k->bf16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t a_dims = { M, K }, b_dims = { K, N }, c_dims = { M, N };
    const dnnl_dims_t a_strides = { k->a_transposed ? 1 : lda, k->a_transposed ? lda : 1 };
    const dnnl_dims_t b_strides = { k->b_transposed ? 1 : ldb, k->b_transposed ? ldb : 1 };
    const dnnl_dims_t c_strides = { ldc, 1 };
    dnnl_status_t status = make_desc(&d[0], a_dims, in, a_strides);

    if (status == dnnl_success)
        status = make_desc(&d[1], b_dims, in, b_strides);
    if (status == dnnl_success)
        status = make_desc(&d[2], c_dims, dnnl_f32, c_strides);
    return status;
}

static dnnl_status_t make_attr(dnnl_primitive_attr_t *out, int accumulate)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(out);

    if (status != dnnl_success || !accumulate)
        return status;
    status = dnnl_post_ops_create(&ops);
    if (status == dnnl_success)
        status = append_sum(ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*out, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    return status;
}

static dnnl_status_t fill_slot(struct slot *s, const struct key *key, dnnl_engine_t engine)
{
    desc d[3];
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status;

    memset(d, 0, sizeof d);
    s->key = *key;
    s->used = 1;
    status = make_descs(d, key);
    if (status == dnnl_success)
        status = make_attr(&attr, key->accumulate);
    if (status == dnnl_success)
        status = make_primitive_desc(&pd, d, attr, engine);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&s->primitive, pd);
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = dnnl_memory_create(&s->memories[i], desc_of(&d[i]), engine, DNNL_MEMORY_NONE);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 3; i++)
        free_desc(&d[i]);
    return status;
}

static struct key key_of(const struct dlc_product *p)
{
    struct key k;

    memset(&k, 0, sizeof k); /* padding too: keys are compared as bytes */
    k.M = p->M, k.N = p->N, k.K = p->K;
    k.lda = p->a.ld, k.ldb = p->b.ld, k.ldc = p->ldc;
    k.a_transposed = p->a.transposed, k.b_transposed = p->b.transposed;
    k.accumulate = p->accumulate != 0;
    k.bf16 = p->a.dtype == DLC_BF16;
    return k;
}

static size_t hash_of(const struct key *k)
{
    size_t h = k->M;

    h = h * 31 + k->N;
    h = h * 31 + k->K;
    h = h * 31 + k->lda;
    h = h * 31 + k->ldb;
    return h * 31 + (size_t)(k->a_transposed * 4 + k->b_transposed * 2 + k->accumulate);
}

/* The slot of this shape, made when it is new; one whose primitive is NULL when oneDNN cannot do it. */
static struct slot *find_slot(struct onednn *o, int worker, const struct dlc_product *p)
{
    struct key key = key_of(p);
    struct slot *slots = o->slots + (size_t)worker * N_SLOTS, *s;
    size_t h = hash_of(&key);

    for (size_t i = 0; i < N_PROBES; i++) {
        s = &slots[(h + i) % N_SLOTS];
        if (s->used && memcmp(&s->key, &key, sizeof key) == 0)
            return s;
        if (!s->used)
            break;
    }
    free_slot(s);
    if (fill_slot(s, &key, o->engine) != dnnl_success) {
        free_slot(s);
        s->key = key;
        s->used = 1; /* remembered as impossible */
    }
    return s;
}

static int multiply_by_primitive(struct onednn *o, int worker, const struct dlc_product *p)
{
    struct slot *s = find_slot(o, worker, p);
    dnnl_exec_arg_t args[3];

    if (!s->primitive)
        return 0;
    args[0] = (dnnl_exec_arg_t){ DNNL_ARG_SRC, s->memories[0] };
    args[1] = (dnnl_exec_arg_t){ DNNL_ARG_WEIGHTS, s->memories[1] };
    args[2] = (dnnl_exec_arg_t){ DNNL_ARG_DST, s->memories[2] };
    dnnl_memory_set_data_handle(s->memories[0], (void *)(uintptr_t)p->a.values);
    dnnl_memory_set_data_handle(s->memories[1], (void *)(uintptr_t)p->b.values);
    dnnl_memory_set_data_handle(s->memories[2], p->c);
    return dnnl_primitive_execute(s->primitive, o->streams[worker], 3, args) == dnnl_success;
}

static int multiply_by_sgemm(const struct dlc_product *p)
{
    return dnnl_sgemm(p->a.transposed ? 'T' : 'N', p->b.transposed ? 'T' : 'N', (dnnl_dim_t)p->M, (dnnl_dim_t)p->N,
                      (dnnl_dim_t)p->K, 1, p->a.values, (dnnl_dim_t)p->a.ld, p->b.values, (dnnl_dim_t)p->b.ld,
                      p->accumulate ? 1 : 0, p->c, (dnnl_dim_t)p->ldc) == dnnl_success;
}

/* oneDNN copies columns of a transposed `a` one by one. Where these lie a multiple of the page apart, as in the head's
 * gradient with a round vocabulary, they push each other out of the first cache, and it takes twice as long as we do.
 */
static int columns_collide(const struct dlc_product *p)
{
    return p->a.transposed && p->a.ld * dlc_dtype_size(p->a.dtype) % 4096 == 0 && p->K >= 64;
}

static void multiply(struct dlc_cpu *cpu, int worker, const struct dlc_product *p)
{
    struct onednn *o = cpu->lib_state;
    int f32 = p->a.dtype == DLC_F32, done = 0;

    if (f32 && columns_collide(p) && !cpu->plain_only) {
        dlc_matmul_builtin(cpu, worker, p);
        return;
    }
    if (o->set_omp_threads)
        o->set_omp_threads(1); /* a setting of the calling thread; some nanoseconds */
    if (f32 && !o->f32_by_primitives)
        done = multiply_by_sgemm(p);
    else if (f32 || o->has_bf16)
        done = multiply_by_primitive(o, worker, p);
    if (!done)
        dlc_matmul_builtin(cpu, worker, p);
}

/* ---- opening ---- */

static void close_onednn(struct dlc_cpu *cpu)
{
    struct onednn *o = cpu->lib_state;

    for (size_t i = 0; o->slots && i < (size_t)cpu->n_threads * N_SLOTS; i++)
        free_slot(&o->slots[i]);
    for (int i = 0; o->streams && i < cpu->n_threads; i++)
        if (o->streams[i])
            dnnl_stream_destroy(o->streams[i]);
    if (o->engine)
        dnnl_engine_destroy(o->engine);
    dlc_free(o->slots);
    dlc_free(o->streams);
    dlc_free(o);
    cpu->lib_state = NULL;
}

/* A weaker set than the machine's own is passed on. oneDNN takes this once a process, before its first product. */
static void limit_instructions(dlc_isa isa)
{
    if (isa == DLC_ISA_AVX2)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    else if (isa == DLC_ISA_AVX512)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_vnni);
    else if (isa == DLC_ISA_AVX512BF16)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
}

static dlc_err open_with(struct dlc_cpu *cpu, int f32_by_primitives)
{
    struct onednn *o;
    dnnl_status_t status;

    if (cpu->plain_only)
        return DLC_ENOTFOUND;
    o = cpu->lib_state = dlc_calloc(1, sizeof *o);
    if (!o)
        return DLC_ENOMEM;
    o->f32_by_primitives = f32_by_primitives;
    o->has_bf16 = cpu->isa >= DLC_ISA_AVX512BF16;
    /* Looked up rather than linked: which OpenMP the library brings, if any, is its own affair. */
    *(void **)&o->set_omp_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    o->slots = dlc_calloc((size_t)cpu->n_threads * N_SLOTS, sizeof *o->slots);
    o->streams = dlc_calloc((size_t)cpu->n_threads, sizeof(dnnl_stream_t));
    if (!o->slots || !o->streams) {
        close_onednn(cpu);
        return DLC_ENOMEM;
    }
    if (cpu->isa != dlc_cpu_best_isa())
        limit_instructions(cpu->isa);
    status = dnnl_engine_create(&o->engine, dnnl_cpu, 0);
    for (int i = 0; i < cpu->n_threads && status == dnnl_success; i++)
        status = dnnl_stream_create(&o->streams[i], o->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        return DLC_OK;
    close_onednn(cpu);
    return dlc_fail(DLC_EFAIL, "oneDNN cannot be opened (status %d); build without it: -Donednn=disabled", (int)status);
}

static dlc_err open_onednn(struct dlc_cpu *cpu)
{
    return open_with(cpu, 0);
}

static dlc_err open_primitives(struct dlc_cpu *cpu)
{
    return open_with(cpu, 1);
}

const struct dlc_matmul_lib dlc_matmul_onednn = { "onednn", open_onednn, close_onednn, multiply };
const struct dlc_matmul_lib dlc_matmul_onednn_primitives = { "onednn-primitive", open_primitives, close_onednn,
                                                             multiply };
