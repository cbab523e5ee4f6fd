#include "base/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

struct dlc_sha256_ctx {
    EVP_MD_CTX *evp;
};

static void must(int ok)
{
    if (ok != 1) { /* SHA-256 on memory cannot fail in a working libcrypto */
        fprintf(stderr, "diloco: libcrypto refuses SHA-256\n");
        abort();
    }
}

struct dlc_sha256 dlc_sha256(const void *data, size_t size_bytes)
{
    struct dlc_sha256 d;

    must(EVP_Digest(data, size_bytes, d.bytes, NULL, EVP_sha256(), NULL));
    return d;
}

dlc_err dlc_sha256_create(dlc_sha256_ctx **out)
{
    dlc_sha256_ctx *ctx = dlc_calloc(1, sizeof *ctx);

    *out = NULL;
    if (!ctx)
        return DLC_ENOMEM;
    ctx->evp = EVP_MD_CTX_new();
    if (!ctx->evp) {
        dlc_free(ctx);
        return dlc_fail(DLC_ENOMEM, "out of memory: SHA-256 context");
    }
    must(EVP_DigestInit_ex(ctx->evp, EVP_sha256(), NULL));
    *out = ctx;
    return DLC_OK;
}

void dlc_sha256_update(dlc_sha256_ctx *ctx, const void *data, size_t size_bytes)
{
    must(EVP_DigestUpdate(ctx->evp, data, size_bytes));
}

struct dlc_sha256 dlc_sha256_final(dlc_sha256_ctx *ctx)
{
    struct dlc_sha256 d;

    must(EVP_DigestFinal_ex(ctx->evp, d.bytes, NULL));
    must(EVP_DigestInit_ex(ctx->evp, EVP_sha256(), NULL));
    return d;
}

void dlc_sha256_destroy(dlc_sha256_ctx *ctx)
{
    if (!ctx)
        return;
    EVP_MD_CTX_free(ctx->evp);
    dlc_free(ctx);
}

dlc_err dlc_sha256_file(struct dlc_sha256 *out, const char *path)
{
    enum { CHUNK = 1 << 20 };
    dlc_sha256_ctx *ctx = NULL;
    unsigned char *chunk = NULL;
    dlc_err err = DLC_OK;
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return dlc_fail_errno(errno == ENOENT ? DLC_ENOTFOUND : DLC_EIO, "%s", path);
    DLC_TRY_TO(done, dlc_sha256_create(&ctx));
    chunk = dlc_alloc(CHUNK);
    if (!chunk) {
        err = DLC_ENOMEM;
        goto done;
    }
    while ((n = fread(chunk, 1, CHUNK, f)) > 0)
        dlc_sha256_update(ctx, chunk, n);
    if (ferror(f))
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be read", path);
    else
        *out = dlc_sha256_final(ctx);
done:
    dlc_free(chunk);
    dlc_sha256_destroy(ctx);
    fclose(f);
    return err;
}

void dlc_sha256_to_hex(char out[DLC_SHA256_HEX], const struct dlc_sha256 *d)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < DLC_SHA256_BYTES; i++) {
        out[2 * i] = digits[d->bytes[i] >> 4];
        out[2 * i + 1] = digits[d->bytes[i] & 15];
    }
    out[2 * DLC_SHA256_BYTES] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

dlc_err dlc_sha256_from_hex(struct dlc_sha256 *out, const char *hex)
{
    if (strlen(hex) != 2 * DLC_SHA256_BYTES)
        return dlc_fail(DLC_EINPUT, "a SHA-256 has 64 hexadecimal digits, this has %zu", strlen(hex));
    for (size_t i = 0; i < DLC_SHA256_BYTES; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);

        if (high < 0 || low < 0)
            return dlc_fail(DLC_EINPUT, "not a SHA-256 in lower-case hexadecimal: '%.64s'", hex);
        out->bytes[i] = (unsigned char)(high << 4 | low);
    }
    return DLC_OK;
}

int dlc_sha256_equal(const struct dlc_sha256 *a, const struct dlc_sha256 *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

uint64_t dlc_xxh64(const void *data, size_t size_bytes)
{
    return XXH3_64bits(data, size_bytes);
}
