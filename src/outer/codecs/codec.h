/* Codecs: how an outer gradient is written on the wire. One file each; the table below is the only list.
 *
 * The outer gradient of an island is delta = base - params ("old minus new": it is minimised), with base = theta(t-1).
 * A decoder adds a weighted delta into a block of double sums, so that averaging K islands needs no K dense copies and
 * the sums do not depend on how the blocks are cut. Everyone who decodes the same bytes against the same base gets the
 * same bits, on every instruction set. docs/formats/contribution.md has the layouts. */
#ifndef DLC_OUTER_CODECS_CODEC_H
#define DLC_OUTER_CODECS_CODEC_H

#include <stddef.h>

#include "base/err.h"

#define DLC_CODEC_BLOCK ((size_t)2048)

struct dlc_codec {
    const char *name;

    /* Exact size in bytes of n encoded values. */
    size_t (*size_bytes)(size_t n);

    /* Writes size_bytes(n) bytes. Cannot fail; non-finite values stay non-finite, so that the receiver refuses them. */
    void (*encode)(void *payload, const float *base, const float *params, size_t n);

    /* sums[i - begin] += weight * delta[i] for begin <= i < end, in double. `payload` and `base` are of all n values;
     * the payload's size was checked. Any bytes are safe to decode. */
    void (*decode_add)(double *sums, double weight, const void *payload, const float *base, size_t begin, size_t end);

    /* Writes values begin <= i < end of a payload of n: delta[i - begin] is the outer gradient (a mean of several). Every
     * byte depends on the values of its own block of DLC_CODEC_BLOCK alone, and `begin` is a multiple of that; so a
     * block may be written anywhere as the first of a payload of its own. */
    void (*encode_block)(void *payload, const float *base, const double *delta, size_t begin, size_t end);

    /* out[i - begin] = parameter i of the island itself. NULL where the payload holds differences only. */
    void (*params)(float *out, const void *payload, size_t begin, size_t end);
};

/* f32: 4 n bytes, the island's parameters as they are. Parameters and not differences: base - (base - params) is not
 * always params, in no floating-point format, and an outer step that takes one island's parameters over (a run of one
 * island with eta 1 and mu 0, data parallelism) has to give them back to the last bit. */
extern const struct dlc_codec dlc_codec_f32;

/* bf16: 2 n bytes, the difference taken in f32 and rounded to nearest even. */
extern const struct dlc_codec dlc_codec_bf16;

const struct dlc_codec *const *dlc_codecs(void);         /* NULL-terminated */
const struct dlc_codec *dlc_codec_find(const char *name); /* NULL when there is none of this name */

#endif
