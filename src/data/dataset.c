#include "data/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
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

struct shard {
    unsigned char *file; /* mapped; NULL: not yet */
    size_t size_bytes;
    const void *tokens;
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

static uint32_t token_at(const struct shard *s, uint64_t i)
{
    return s->width == 2 ? ((const uint16_t *)s->tokens)[i] : ((const uint32_t *)s->tokens)[i];
}

static dlc_err token_outside(const struct shard *s, uint64_t i, uint32_t limit, const char *path)
{
    while (token_at(s, i) < limit)
        i++;
    return dlc_fail(DLC_EINPUT,
                    "%s: token %llu is %u, the vocabulary ends at %u; the shard is damaged or was made with "
                    "another tokenizer",
                    path, (unsigned long long)i, token_at(s, i), limit - 1);
}

/* One pass over the tokens: largest id, digest. Ids from `limit` on are DLC_EINPUT with the place. */
static dlc_err scan(uint32_t *largest, uint64_t *xxh3, const struct shard *s, uint32_t limit, const char *path)
{
    XXH3_state_t *hash = XXH3_createState();
    size_t block = SCAN_BYTES / (size_t)s->width;
    dlc_err err = DLC_OK;

    if (!hash || XXH3_64bits_reset(hash) != XXH_OK)
        err = dlc_fail(DLC_ENOMEM, "out of memory: shard digest");
    for (uint64_t at = 0; err == DLC_OK && at < s->n_tokens; at += block) {
        size_t n = s->n_tokens - at < block ? (size_t)(s->n_tokens - at) : block;
        const void *tokens = (const char *)s->tokens + at * (uint64_t)s->width;
        uint32_t most = s->width == 2 ? largest_16(tokens, n) : largest_32(tokens, n);

        XXH3_64bits_update(hash, tokens, n * (size_t)s->width);
        *largest = most > *largest ? most : *largest;
        if (most >= limit)
            err = token_outside(s, at, limit, path);
    }
    *xxh3 = err == DLC_OK ? XXH3_64bits_digest(hash) : 0;
    XXH3_freeState(hash);
    return err;
}

static dlc_err map_file(struct shard *s, const char *path)
{
    struct stat st;
    void *file;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EINPUT, "%s", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return dlc_fail(DLC_EINPUT, "%s: not a token shard (%s)", path, st.st_size == 0 ? "empty" : "not a file");
    }
    file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (file == MAP_FAILED)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be mapped", path);
    s->file = file;
    s->size_bytes = (size_t)st.st_size;
    return DLC_OK;
}

static dlc_err open_shard(struct shard *s, const char *path)
{
    struct dlc_shard_header header;

    DLC_TRY(map_file(s, path));
    DLC_TRY(dlc_shard_header_read(&header, s->file, s->size_bytes, path));
    s->width = header.width;
    s->n_tokens = header.n_tokens;
    s->tokens = s->file + DLC_SHARD_HEADER_BYTES;
    return DLC_OK;
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
    d->shards = dlc_calloc(d->meta.n_shards, sizeof *d->shards);
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
    d->meta.n_shards++; /* counted first, so that closing unmaps it */
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
    d->shards = dlc_calloc(names.n, sizeof *d->shards);
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

dlc_err dlc_dataset_open(dlc_dataset **out, const char *folder, int context, dlc_deal deal, uint64_t seed)
{
    dlc_dataset *d = dlc_calloc(1, sizeof *d);
    dlc_err err;

    *out = NULL;
    if (!d)
        return DLC_ENOMEM;
    d->context = context;
    d->seed = seed;
    err = open_all(d, folder, deal);
    if (err != DLC_OK) {
        dlc_dataset_close(d);
        return err;
    }
    *out = d;
    return DLC_OK;
}

void dlc_dataset_close(dlc_dataset *d)
{
    if (!d)
        return;
    for (size_t i = 0; d->shards && i < d->meta.n_shards; i++) {
        if (d->shards[i].file)
            munmap(d->shards[i].file, d->shards[i].size_bytes);
    }
    for (int i = 0; i < d->n_pools; i++) {
        dlc_free(d->pools[i].shards);
        dlc_free(d->pools[i].first);
    }
    dlc_free(d->pools);
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

static void copy_tokens(int32_t *out, const struct shard *s, uint64_t first, size_t n)
{
    if (s->width == 4) {
        memcpy(out, (const uint32_t *)s->tokens + first, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = ((const uint16_t *)s->tokens)[first + i];
}

void dlc_dataset_sample(const dlc_dataset *d, int pool, uint64_t k, int32_t *tokens, int32_t *targets)
{
    const struct pool *p = &d->pools[pool];
    uint64_t key = dlc_rng_u64(d->seed, (uint64_t)pool, k / p->n_windows);
    uint64_t window = dlc_permute(k % p->n_windows, p->n_windows, key), start;
    size_t low = 0, high = p->n_shards;

    while (high - low > 1) { /* first[low] <= window < first[high] */
        size_t middle = (low + high) / 2;

        if (p->first[middle] <= window)
            low = middle;
        else
            high = middle;
    }
    start = (window - p->first[low]) * (uint64_t)d->context;
    copy_tokens(tokens, &d->shards[p->shards[low]], start, (size_t)d->context);
    copy_tokens(targets, &d->shards[p->shards[low]], start + 1, (size_t)d->context);
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

static void copy_val(int32_t *out, const dlc_dataset *d, uint64_t first, size_t n)
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
        copy_tokens(out, s, first, k);
        out += k;
        n -= k;
        first = 0;
    }
}

void dlc_dataset_val_window(const dlc_dataset *d, const struct dlc_val_set *set, uint64_t index, int32_t *tokens,
                            int32_t *targets)
{
    uint64_t there = val_windows(d, set->seq_len);
    uint64_t start = (uint64_t)((unsigned __int128)index * there / set->n_windows) * (uint64_t)set->seq_len;

    copy_val(tokens, d, start, (size_t)set->seq_len);
    copy_val(targets, d, start + 1, (size_t)set->seq_len);
}
