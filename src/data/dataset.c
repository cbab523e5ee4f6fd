#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/bpe_model.h"
#include "data/meta.h"
#include "data/permute.h"
#include "data/shard.h"

#define SCAN_BYTES ((size_t)256 << 10) /* stays in a second-level cache between the two looks at it */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are read from the file as they are");

/* Read, not mapped: pages of a mapping count as memory of each process that touched them, and a file that somebody cuts
 * off would kill the process. */
struct shard {
    int fd; /* -1: not open */
    int width;
    uint64_t n_tokens;
};

struct pool {
    const char *name;
    size_t *shards;  /* those with windows, in order */
    uint64_t *first; /* window number of each one's first window; one more than shards: the end */
    size_t n_shards;
    uint64_t n_windows;
};

struct dlc_dataset {
    struct dlc_dataset_info info;
    struct dlc_data_meta meta;
    struct shard *shards; /* as in meta */
    int context;
    uint64_t seed;
    bool trusted; /* the shards were read through by another process just now */
    struct pool *pools;
    int n_pools;
};

/* ---- opening shards ---- */

static uint32_t largest_16(const uint16_t *tokens, size_t n)
{
    uint16_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = tokens[i] > most ? tokens[i] : most;
    return most;
}

static uint32_t largest_32(const uint32_t *tokens, size_t n)
{
    uint32_t most = 0;

    for (size_t i = 0; i < n; i++)
        most = tokens[i] > most ? tokens[i] : most;
    return most;
}

static uint32_t token_in(const void *tokens, int width, size_t i)
{
    return width == 2 ? ((const uint16_t *)tokens)[i] : ((const uint32_t *)tokens)[i];
}

static dlc_err token_outside(const void *tokens, const struct shard *s, uint64_t first, uint32_t limit,
                             const char *path)
{
    size_t i = 0;

    while (token_in(tokens, s->width, i) < limit)
        i++;
    return dlc_fail(DLC_EINPUT,
                    "%s: token %llu is %u, the vocabulary ends at %u; the shard is damaged or was made with "
                    "another tokenizer",
                    path, (unsigned long long)(first + i), token_in(tokens, s->width, i), limit - 1);
}

/* n bytes at an offset. */
static dlc_err read_at(void *out, int fd, size_t n, uint64_t at, const char *path)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)out + done, n - done, (off_t)(at + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be read", path);
        if (got == 0)
            return dlc_fail(DLC_EINPUT, "%s: was cut off while it is in use", path);
        done += (size_t)got;
    }
    return DLC_OK;
}

static dlc_err scan_blocks(uint32_t *largest, XXH3_state_t *hash, void *block, const struct shard *s, uint32_t limit,
                           const char *path)
{
    size_t width = (size_t)s->width, in_block = SCAN_BYTES / width;

    for (uint64_t at = 0; at < s->n_tokens; at += in_block) {
        size_t n = s->n_tokens - at < in_block ? (size_t)(s->n_tokens - at) : in_block;
        uint32_t most;

        DLC_TRY(read_at(block, s->fd, n * width, DLC_SHARD_HEADER_BYTES + at * width, path));
        most = width == 2 ? largest_16(block, n) : largest_32(block, n);
        XXH3_64bits_update(hash, block, n * width);
        *largest = most > *largest ? most : *largest;
        if (most >= limit)
            return token_outside(block, s, at, limit, path);
    }
    return DLC_OK;
}

/* One pass over the tokens: largest id, digest. Ids from `limit` on are DLC_EINPUT with the place. */
static dlc_err scan(uint32_t *largest, uint64_t *xxh3, const struct shard *s, uint32_t limit, const char *path)
{
    XXH3_state_t *hash = XXH3_createState();
    void *block = dlc_alloc(SCAN_BYTES);
    dlc_err err = DLC_OK;

    if (!block)
        err = DLC_ENOMEM;
    else if (!hash || XXH3_64bits_reset(hash) != XXH_OK)
        err = dlc_fail(DLC_ENOMEM, "out of memory: shard digest");
    if (err == DLC_OK)
        err = scan_blocks(largest, hash, block, s, limit, path);
    *xxh3 = err == DLC_OK ? XXH3_64bits_digest(hash) : 0;
    XXH3_freeState(hash);
    dlc_free(block);
    return err;
}

/* A set can have more shards than a process may usually have open files: the usual limit is not the hard one. */
static int open_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct rlimit limit;

    if (fd >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return fd;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        errno = EMFILE;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC);
}

static dlc_err open_shard(struct shard *s, const char *path)
{
    struct dlc_shard_header header;
    unsigned char bytes[DLC_SHARD_HEADER_BYTES] = { 0 };
    struct stat st;

    s->fd = open_file(path);
    if (s->fd < 0)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EINPUT, "%s", path);
    if (fstat(s->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return dlc_fail(DLC_EINPUT, "%s: not a token shard (%s)", path, st.st_size == 0 ? "empty" : "not a file");
    if ((size_t)st.st_size >= sizeof bytes)
        DLC_TRY(read_at(bytes, s->fd, sizeof bytes, 0, path));
    DLC_TRY(dlc_shard_header_read(&header, bytes, (uint64_t)st.st_size, path));
    s->width = header.width;
    s->n_tokens = header.n_tokens;
    return DLC_OK;
}

/* All closed. */
static struct shard *make_shards(size_t n)
{
    struct shard *shards = dlc_calloc(n, sizeof *shards);

    for (size_t i = 0; shards && i < n; i++)
        shards[i].fd = -1;
    return shards;
}

static dlc_err open_listed_shard(dlc_dataset *d, size_t i, const char *folder)
{
    const struct dlc_shard_info *info = &d->meta.shards[i];
    struct shard *s = &d->shards[i];
    char path[DLC_PATH_MAX];
    uint32_t largest = 0;
    uint64_t xxh3;

    DLC_TRY(dlc_path_join(path, folder, info->name));
    DLC_TRY(open_shard(s, path));
    if (s->n_tokens != info->n_tokens || s->width != d->meta.width)
        return dlc_fail(DLC_EINPUT, "%s: %llu tokens of %d bytes, meta.json says %llu of %d; run prepare again", path,
                        (unsigned long long)s->n_tokens, s->width, (unsigned long long)info->n_tokens, d->meta.width);
    if (d->trusted)
        return DLC_OK;
    DLC_TRY(scan(&largest, &xxh3, s, (uint32_t)d->meta.vocab_size, path));
    if (xxh3 != info->xxh3)
        return dlc_fail(DLC_EINPUT, "%s: damaged: XXH3 is %016llx, meta.json says %016llx; run prepare again", path,
                        (unsigned long long)xxh3, (unsigned long long)info->xxh3);
    return DLC_OK;
}

static dlc_err check_tokenizer(const dlc_dataset *d, const char *folder)
{
    char path[DLC_PATH_MAX], here[DLC_SHA256_HEX], there[DLC_SHA256_HEX];
    struct dlc_sha256 digest;

    DLC_TRY(dlc_path_join(path, folder, "tokenizer.json"));
    if (dlc_sha256_file(&digest, path) != DLC_OK)
        return dlc_fail_context(DLC_EINPUT, "the shards' tokenizer");
    if (dlc_sha256_equal(&digest, &d->meta.tokenizer_digest))
        return DLC_OK;
    dlc_sha256_to_hex(here, &digest);
    dlc_sha256_to_hex(there, &d->meta.tokenizer_digest);
    return dlc_fail(DLC_EINPUT,
                    "%s: not the tokenizer that made the shards (SHA-256 %.16s..., meta.json says %.16s...)", path,
                    here, there);
}

static dlc_err open_prepared(dlc_dataset *d, const char *folder, const char *meta_path)
{
    struct dlc_buf text = { 0 };
    dlc_err err = dlc_file_read(&text, meta_path, DLC_META_BYTES_MAX);

    if (err == DLC_OK)
        err = dlc_data_meta_parse(&d->meta, text.data, text.len, meta_path);
    dlc_buf_fini(&text);
    if (err != DLC_OK)
        return err;
    DLC_TRY(check_tokenizer(d, folder));
    d->shards = make_shards(d->meta.n_shards);
    if (!d->shards)
        return DLC_ENOMEM;
    for (size_t i = 0; i < d->meta.n_shards; i++)
        DLC_TRY(open_listed_shard(d, i, folder));
    return DLC_OK;
}

/* ---- folders of bare shards, as other programs write them ---- */

/* "NAME_train_000000.bin": the length of NAME, 0 when the file is no shard by its name. */
static size_t bare_name(bool *val, const char *file)
{
    size_t n = strlen(file);
    const char *train = strstr(file, "_train_"), *v = strstr(file, "_val_");

    if (n < 5 || strcmp(file + n - 4, ".bin") != 0 || (!train && !v))
        return 0;
    *val = !train;
    return (size_t)((train ? train : v) - file);
}

static int bare_source(struct dlc_data_meta *m, const char *name, size_t n)
{
    char label[DLC_LABEL_BYTES];
    int i;

    dlc_label_set(label, name, n);
    for (i = 0; i < m->n_sources; i++) {
        if (strcmp(m->sources[i], label) == 0)
            return i;
    }
    if (i == DLC_SOURCES_MAX)
        return i - 1;
    memcpy(m->sources[m->n_sources++], label, sizeof label);
    return i;
}

static dlc_err add_bare_shard(dlc_dataset *d, const char *folder, const char *file)
{
    struct dlc_shard_info *info = &d->meta.shards[d->meta.n_shards];
    struct shard *s = &d->shards[d->meta.n_shards];
    char path[DLC_PATH_MAX];
    uint32_t largest = 0;
    bool val;
    size_t n = bare_name(&val, file);

    if (n == 0 || strlen(file) >= sizeof info->name)
        return DLC_OK;
    d->meta.n_shards++; /* counted first, so that closing closes it */
    DLC_TRY(dlc_path_join(path, folder, file));
    DLC_TRY(open_shard(s, path));
    info->val = val;
    info->source = bare_source(&d->meta, file, n);
    info->n_tokens = s->n_tokens;
    snprintf(info->name, sizeof info->name, "%s", file);
    DLC_TRY(scan(&largest, &info->xxh3, s, DLC_VOCAB_MAX, path));
    if ((int)largest >= d->meta.vocab_size)
        d->meta.vocab_size = (int)largest + 1;
    return DLC_OK;
}

static dlc_err open_bare(dlc_dataset *d, const char *folder)
{
    struct dlc_names names;
    char lock[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_path_join(lock, folder, ".prepare.lock"));
    if (dlc_file_exists(lock))
        return dlc_fail(DLC_EINPUT, "%s: no meta.json; prepare did not finish here, run it again", folder);
    DLC_TRY(dlc_list_folder(&names, folder));
    d->shards = make_shards(names.n);
    d->meta.shards = dlc_calloc(names.n, sizeof *d->meta.shards);
    d->meta.sources = dlc_calloc(DLC_SOURCES_MAX, sizeof *d->meta.sources);
    d->meta.eot = -1;
    err = d->shards && d->meta.shards && d->meta.sources ? DLC_OK : DLC_ENOMEM;
    for (size_t i = 0; err == DLC_OK && i < names.n; i++)
        err = add_bare_shard(d, folder, names.names[i]);
    dlc_names_free(&names);
    if (err == DLC_OK && d->meta.n_shards == 0)
        err =
            dlc_fail(DLC_EINPUT,
                     "%s: no meta.json and no *_train_*.bin: not a prepared folder (diloco prepare makes one)", folder);
    if (err == DLC_OK)
        dlc_info("%s: shards without meta.json; vocabulary of %d taken from the largest id, no bits per byte", folder,
                 d->meta.vocab_size);
    return err;
}

/* ---- pools ---- */

static uint64_t windows_of(const dlc_dataset *d, size_t shard)
{
    const struct shard *s = &d->shards[shard];

    return !d->meta.shards[shard].val && s->n_tokens > 0 ? (s->n_tokens - 1) / (uint64_t)d->context : 0;
}

/* source < 0: all. A pool without windows is not added. */
static dlc_err add_pool(dlc_dataset *d, int source, const char *name)
{
    struct pool *p = &d->pools[d->n_pools];

    p->name = name;
    p->shards = dlc_calloc(d->meta.n_shards, sizeof *p->shards);
    p->first = dlc_calloc(d->meta.n_shards + 1, sizeof *p->first);
    d->n_pools++; /* counted first, so that closing frees it */
    if (!p->shards || !p->first)
        return DLC_ENOMEM;
    for (size_t i = 0; i < d->meta.n_shards; i++) {
        uint64_t n = windows_of(d, i);

        if (n == 0 || (source >= 0 && d->meta.shards[i].source != source))
            continue;
        p->shards[p->n_shards] = i;
        p->first[p->n_shards++] = p->n_windows;
        p->n_windows += n;
    }
    p->first[p->n_shards] = p->n_windows;
    if (p->n_windows > 0)
        return DLC_OK;
    dlc_free(p->shards);
    dlc_free(p->first);
    *p = (struct pool){ 0 };
    d->n_pools--;
    if (source >= 0)
        dlc_warn("source %s: no shard of %d tokens in a row; it is not used", name, d->context + 1);
    return DLC_OK;
}

static dlc_err too_short(const dlc_dataset *d, const char *folder)
{
    uint64_t longest = 0;

    for (size_t i = 0; i < d->meta.n_shards; i++) {
        if (!d->meta.shards[i].val && d->shards[i].n_tokens > longest)
            longest = d->shards[i].n_tokens;
    }
    if (longest < 2)
        return dlc_fail(DLC_EINPUT, "%s: no training text (%llu tokens)", folder,
                        (unsigned long long)d->info.n_train_tokens);
    return dlc_fail(DLC_EINPUT,
                    "%s: a context of %d needs %d tokens in a row; there are %llu, and %llu in all: the "
                    "largest context that works is %llu",
                    folder, d->context, d->context + 1, (unsigned long long)longest,
                    (unsigned long long)d->info.n_train_tokens, (unsigned long long)longest - 1);
}

static dlc_err make_pools(dlc_dataset *d, dlc_deal deal, const char *folder)
{
    d->pools = dlc_calloc(DLC_SOURCES_MAX, sizeof *d->pools);
    if (!d->pools)
        return DLC_ENOMEM;
    if (deal == DLC_DEAL_IID)
        DLC_TRY(add_pool(d, -1, "all"));
    for (int s = 0; deal == DLC_DEAL_SOURCE && s < d->meta.n_sources; s++)
        DLC_TRY(add_pool(d, s, d->meta.sources[s]));
    return d->n_pools > 0 ? DLC_OK : too_short(d, folder);
}

/* ---- the set ---- */

static dlc_err fill_info(dlc_dataset *d)
{
    struct dlc_dataset_info *info = &d->info;

    info->vocab_size = d->meta.vocab_size;
    info->eot = d->meta.eot;
    info->tokenizer_digest = d->meta.tokenizer_digest;
    for (size_t i = 0; i < d->meta.n_shards; i++) {
        if (d->meta.shards[i].val) {
            info->n_val_tokens += d->shards[i].n_tokens;
            info->n_val_bytes += d->meta.shards[i].n_bytes;
        } else {
            info->n_train_tokens += d->shards[i].n_tokens;
        }
    }
    return dlc_data_meta_digest(&info->digest, &d->meta);
}

static dlc_err open_all(dlc_dataset *d, const char *folder, dlc_deal deal)
{
    char meta_path[DLC_PATH_MAX];

    if (d->context < 1)
        return dlc_fail(DLC_EUSAGE, "a context of %d tokens is not possible", d->context);
    if (!dlc_file_exists(folder))
        return dlc_fail(DLC_ENOTFOUND, "%s: no such folder", folder);
    if (!dlc_is_folder(folder))
        return dlc_fail(DLC_EINPUT, "%s: not a folder; `diloco prepare` makes one from text", folder);
    DLC_TRY(dlc_path_join(meta_path, folder, "meta.json"));
    if (dlc_file_exists(meta_path))
        DLC_TRY(open_prepared(d, folder, meta_path));
    else
        DLC_TRY(open_bare(d, folder));
    DLC_TRY(fill_info(d));
    return make_pools(d, deal, folder);
}

static dlc_err open_set(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed, bool trusted)
{
    dlc_dataset *d = dlc_calloc(1, sizeof *d);
    dlc_err err;

    *out = NULL;
    if (!d)
        return DLC_ENOMEM;
    d->context = context;
    d->seed = seed;
    d->trusted = trusted;
    err = open_all(d, folder, deal);
    if (err != DLC_OK) {
        dlc_dataset_close(d);
        return err;
    }
    *out = d;
    return DLC_OK;
}

dlc_err dlc_dataset_open(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed)
{
    return open_set(out, folder, context, deal, seed, false);
}

dlc_err dlc_dataset_open_checked(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed)
{
    return open_set(out, folder, context, deal, seed, true);
}

static void free_pools(dlc_dataset *d)
{
    for (int i = 0; i < d->n_pools; i++) {
        dlc_free(d->pools[i].shards);
        dlc_free(d->pools[i].first);
    }
    dlc_free(d->pools);
    d->pools = NULL;
    d->n_pools = 0;
}

dlc_err dlc_dataset_set_context(dlc_dataset *d, int context, dlc_deal deal, const char *folder)
{
    if (context < 1)
        return dlc_fail(DLC_EUSAGE, "a context of %d tokens is not possible", context);
    free_pools(d);
    d->context = context;
    return make_pools(d, deal, folder);
}

void dlc_dataset_close(dlc_dataset *d)
{
    if (!d)
        return;
    for (size_t i = 0; d->shards && i < d->meta.n_shards; i++) {
        if (d->shards[i].fd >= 0)
            close(d->shards[i].fd);
    }
    free_pools(d);
    dlc_free(d->shards);
    dlc_data_meta_fini(&d->meta);
    dlc_free(d);
}

const struct dlc_dataset_info *dlc_dataset_info(const dlc_dataset *d)
{
    return &d->info;
}

int dlc_dataset_n_pools(const dlc_dataset *d)
{
    return d->n_pools;
}

const char *dlc_dataset_pool_name(const dlc_dataset *d, int pool)
{
    return d->pools[pool].name;
}

uint64_t dlc_dataset_pool_windows(const dlc_dataset *d, int pool)
{
    return d->pools[pool].n_windows;
}

/* ---- reading ---- */

/* Tokens as they stand in the file, at the end of out[n], become numbers from the front: no number is overwritten before
 * it was read. They were all below the vocabulary's size when the set was opened. */
static dlc_err widen(int32_t *out, size_t n, const dlc_dataset *d, size_t shard)
{
    uint32_t most = 0, limit = (uint32_t)d->meta.vocab_size;

    if (d->shards[shard].width == 2) {
        const char *raw = (const char *)out + n * sizeof(uint16_t);

        for (size_t i = 0; i < n; i++) {
            uint16_t token;

            memcpy(&token, raw + i * sizeof token, sizeof token);
            out[i] = token;
        }
    }
    for (size_t i = 0; i < n; i++)
        most = (uint32_t)out[i] > most ? (uint32_t)out[i] : most;
    return most < limit ? DLC_OK
                        : dlc_fail(DLC_EINPUT, "%s: has token %u, the vocabulary ends at %u; it changed while it is in use",
                                   d->meta.shards[shard].name, most, limit - 1);
}

static dlc_err read_tokens(int32_t *out, const dlc_dataset *d, size_t shard, uint64_t first, size_t n)
{
    const struct shard *s = &d->shards[shard];
    size_t width = (size_t)s->width;

    DLC_TRY(read_at((char *)out + n * (sizeof *out - width), s->fd, n * width, DLC_SHARD_HEADER_BYTES + first * width,
                    d->meta.shards[shard].name));
    return widen(out, n, d, shard);
}

/* Where sample k begins. */
static uint64_t locate(size_t *shard, const dlc_dataset *d, int pool, uint64_t k)
{
    const struct pool *p = &d->pools[pool];
    uint64_t key = dlc_rng_u64(d->seed, (uint64_t)pool, k / p->n_windows);
    uint64_t window = dlc_permute(k % p->n_windows, p->n_windows, key);
    size_t low = 0, high = p->n_shards;

    while (high - low > 1) { /* first[low] <= window < first[high] */
        size_t middle = (low + high) / 2;

        if (p->first[middle] <= window)
            low = middle;
        else
            high = middle;
    }
    *shard = p->shards[low];
    return (window - p->first[low]) * (uint64_t)d->context;
}

dlc_err dlc_dataset_sample(const dlc_dataset *d, int pool, uint64_t k, int32_t *tokens, int32_t *targets)
{
    size_t shard, n = (size_t)d->context;
    uint64_t start = locate(&shard, d, pool, k);

    DLC_TRY(read_tokens(targets, d, shard, start + 1, n));
    DLC_TRY(read_tokens(tokens, d, shard, start, 1));
    memcpy(tokens + 1, targets, (n - 1) * sizeof *tokens);
    return DLC_OK;
}

void dlc_dataset_prefetch(const dlc_dataset *d, int pool, uint64_t k)
{
#ifdef POSIX_FADV_WILLNEED
    size_t shard, width;
    uint64_t start = locate(&shard, d, pool, k);

    width = (size_t)d->shards[shard].width;
    (void)posix_fadvise(d->shards[shard].fd, (off_t)(DLC_SHARD_HEADER_BYTES + start * width),
                        (off_t)(((size_t)d->context + 1) * width), POSIX_FADV_WILLNEED);
#else
    (void)d;
    (void)pool;
    (void)k;
#endif
}

/* ---- validation: the shards of the split as one sequence ---- */

static uint64_t val_windows(const dlc_dataset *d, int seq_len)
{
    return (d->info.n_val_tokens - 1) / (uint64_t)seq_len;
}

dlc_err dlc_dataset_val_set(struct dlc_val_set *out, const dlc_dataset *d, uint64_t max_tokens)
{
    uint64_t n_tokens = d->info.n_val_tokens;

    *out = (struct dlc_val_set){ 0 };
    if (n_tokens < 2)
        return dlc_fail(DLC_ENOTFOUND,
                        "no validation text in these data (%llu tokens); prepare with a validation share",
                        (unsigned long long)n_tokens);
    out->seq_len = n_tokens - 1 < (uint64_t)d->context ? (int)(n_tokens - 1) : d->context;
    out->n_windows = val_windows(d, out->seq_len);
    if (max_tokens > 0 && out->n_windows > max_tokens / (uint64_t)out->seq_len)
        out->n_windows = max_tokens / (uint64_t)out->seq_len;
    if (out->n_windows == 0)
        out->n_windows = 1;
    out->n_bytes =
        (double)d->info.n_val_bytes * (double)(out->n_windows * (uint64_t)out->seq_len) / (double)(n_tokens - 1);
    return DLC_OK;
}

static dlc_err read_val(int32_t *out, const dlc_dataset *d, uint64_t first, size_t n)
{
    for (size_t i = 0; n > 0 && i < d->meta.n_shards; i++) {
        const struct shard *s = &d->shards[i];
        size_t k;

        if (!d->meta.shards[i].val)
            continue;
        if (first >= s->n_tokens) {
            first -= s->n_tokens;
            continue;
        }
        k = s->n_tokens - first < n ? (size_t)(s->n_tokens - first) : n;
        DLC_TRY(read_tokens(out, d, i, first, k));
        out += k;
        n -= k;
        first = 0;
    }
    return DLC_OK;
}

dlc_err dlc_dataset_val_window(const dlc_dataset *d, const struct dlc_val_set *set, uint64_t index, int32_t *tokens,
                               int32_t *targets)
{
    uint64_t there = val_windows(d, set->seq_len);
    uint64_t start = (uint64_t)((unsigned __int128)index * there / set->n_windows) * (uint64_t)set->seq_len;

    DLC_TRY(read_val(tokens, d, start, (size_t)set->seq_len));
    return read_val(targets, d, start + 1, (size_t)set->seq_len);
}
