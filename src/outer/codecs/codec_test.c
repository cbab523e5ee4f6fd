/* What every codec must do, under its own name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "outer/codecs/codec.h"

/* |decoded - delta| <= relative * |delta| + absolute. A new codec adds its row. */
static const struct {
    const char *name;
    double bytes_per_value, relative, absolute;
} bounds[] = {
    { "f32", 4, 0x1p-53, 0 },        /* the difference of two floats, in double */
    { "bf16", 2, 0x1p-8, 0x1p-134 }, /* 8 bits of significand; below 2^-126 steps of 2^-133 */
};

static size_t bounds_of(const struct dlc_codec *codec)
{
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        if (strcmp(bounds[k].name, codec->name) == 0)
            return k;
    }
    fail_msg("codec %s has no row in the table of bounds", codec->name);
    return 0;
}

#define GUARD 16

struct encoded {
    const struct dlc_codec *codec;
    size_t n;
    unsigned char *bytes; /* with guards before and after */
    unsigned char *payload;
};

static struct encoded encode(const struct dlc_codec *codec, const float *base, const float *params, size_t n)
{
    struct encoded e = { .codec = codec, .n = n, .bytes = dlc_alloc(codec->size_bytes(n) + 2 * GUARD) };

    assert_non_null(e.bytes);
    memset(e.bytes, 0x5a, codec->size_bytes(n) + 2 * GUARD);
    e.payload = e.bytes + GUARD;
    codec->encode(e.payload, base, params, n);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(e.bytes[i], 0x5a);
        assert_int_equal(e.payload[codec->size_bytes(n) + i], 0x5a);
    }
    return e;
}

static void random_pair(float *base, float *params, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++) {
        base[i] = (float)(scale * dlc_rng_normal(3, 1, i));
        params[i] = base[i] - (float)(0.01 * scale * dlc_rng_normal(3, 2, i));
    }
}

static const size_t lengths[] = { 0, 1, 2, 3, 7, 8, 31, 1000, 2049 };

static void the_size_is_exact_and_the_error_bounded(const struct dlc_codec *codec)
{
    size_t k = bounds_of(codec);

    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        for (double scale = 1e-30; scale < 1e31; scale *= 1e10) {
            float base[2049], params[2049];
            double delta[2049] = { 0 };
            size_t n = lengths[l];
            struct encoded e;

            random_pair(base, params, n, scale);
            assert_true((double)codec->size_bytes(n) == bounds[k].bytes_per_value * (double)n);
            e = encode(codec, base, params, n);
            codec->decode_add(delta, 1.0, e.payload, base, 0, n);
            for (size_t i = 0; i < n; i++) {
                double exact = (double)base[i] - (double)params[i];

                if (!(fabs(delta[i] - exact) <= bounds[k].relative * fabs(exact) + bounds[k].absolute))
                    fail_msg("%s, value %zu of %zu at scale %g: %.9g, encoded %.9g", codec->name, i, n, scale, delta[i],
                             exact);
            }
            dlc_free(e.bytes);
        }
    }
}

static const struct {
    float base, params;
    bool finite;
    const char *why;
} specials[] = {
    { 0, 0, true, "zero" },
    { 1, 1, true, "no change" },
    { 0, -0.0f, true, "negative zero" },
    { 0, 1e-45f, true, "the smallest denormal" },
    { 1e-40f, -1e-40f, true, "denormals" },
    { 1e38f, -1e38f, true, "huge" },
    { 0, NAN, false, "not a number" },
    { 0, INFINITY, false, "infinite" },
    { 0, -INFINITY, false, "negative infinite" },
    { NAN, 0, false, "a base that is not a number" },
    { INFINITY, 1, false, "an infinite base" },
};
#define N_SPECIALS (sizeof specials / sizeof *specials)

static void special_values_stay_what_they_are(const struct dlc_codec *codec)
{
    size_t b = bounds_of(codec);
    float base[N_SPECIALS], params[N_SPECIALS];
    double delta[N_SPECIALS] = { 0 };
    struct encoded e;

    for (size_t k = 0; k < N_SPECIALS; k++) {
        base[k] = specials[k].base;
        params[k] = specials[k].params;
    }
    e = encode(codec, base, params, N_SPECIALS);
    codec->decode_add(delta, 1.0, e.payload, base, 0, N_SPECIALS);
    for (size_t k = 0; k < N_SPECIALS; k++) {
        double exact = (double)base[k] - (double)params[k];

        if (isfinite(delta[k]) != specials[k].finite ||
            (specials[k].finite && fabs(delta[k] - exact) > bounds[b].relative * fabs(exact) + bounds[b].absolute))
            fail_msg("%s, %s: %g", codec->name, specials[k].why, delta[k]);
    }
    dlc_free(e.bytes);
}

/* The receiver may get anything of the right size: no crash, and the same sums each time. Placed at odd addresses. */
static void any_bytes_are_safe(const struct dlc_codec *codec)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct dlc_rng rng = { .seed = seed };
        size_t n = (size_t)dlc_rng_below(&rng, 300), size = codec->size_bytes(n), off = (size_t)(seed % 4);
        unsigned char *bytes = dlc_alloc(size + off);
        float base[300];
        double a[300] = { 0 }, b[300] = { 0 };

        for (size_t i = 0; i < size; i++)
            bytes[off + i] = (unsigned char)(seed == 0 ? 0xff : dlc_rng_next(&rng));
        for (size_t i = 0; i < n; i++)
            base[i] = (float)dlc_rng_normal(seed, 5, i);
        codec->decode_add(a, 0.5, bytes + off, base, 0, n);
        codec->decode_add(b, 0.5, bytes + off, base, 0, n);
        assert_memory_equal(a, b, sizeof a);
        dlc_free(bytes);
    }
}

static void blocks_give_what_the_whole_gives(const struct dlc_codec *codec)
{
    enum { N = 1000 };
    float base[N], params[N];
    double whole[N] = { 0 }, cut[N] = { 0 };
    struct dlc_rng rng = { .seed = 8 };
    struct encoded e;

    random_pair(base, params, N, 1);
    e = encode(codec, base, params, N);
    codec->decode_add(whole, 0.3, e.payload, base, 0, N);
    codec->decode_add(whole, 0.7, e.payload, base, 0, N); /* it adds */
    for (size_t begin = 0, end; begin < N; begin = end) {
        end = begin + 1 + (size_t)dlc_rng_below(&rng, 97);
        end = end < N ? end : N;
        codec->decode_add(cut + begin, 0.3, e.payload, base, begin, end);
        codec->decode_add(cut + begin, 0.7, e.payload, base, begin, end);
    }
    assert_memory_equal(whole, cut, sizeof whole);
    codec->decode_add(whole, 1.0, e.payload, base, 500, 500); /* an empty block */
    assert_memory_equal(whole, cut, sizeof whole);
    dlc_free(e.bytes);
}

/* Where a payload holds the parameters, they come out as they went in. */
static void parameters_come_back(const struct dlc_codec *codec)
{
    float base[N_SPECIALS], params[N_SPECIALS], back[N_SPECIALS];
    struct encoded e;

    if (!codec->params)
        return;
    for (size_t k = 0; k < N_SPECIALS; k++) {
        base[k] = specials[k].base;
        params[k] = specials[k].params;
    }
    e = encode(codec, base, params, N_SPECIALS);
    codec->params(back, e.payload, 0, N_SPECIALS);
    assert_memory_equal(back, params, sizeof back);
    codec->params(back, e.payload, 2, 5);
    assert_memory_equal(back, params + 2, 3 * sizeof *back);
    dlc_free(e.bytes);
}

static void every_codec(void **state)
{
    (void)state;
    for (const struct dlc_codec *const *codec = dlc_codecs(); *codec; codec++) {
        the_size_is_exact_and_the_error_bounded(*codec);
        special_values_stay_what_they_are(*codec);
        any_bytes_are_safe(*codec);
        blocks_give_what_the_whole_gives(*codec);
        parameters_come_back(*codec);
        assert_ptr_equal(dlc_codec_find((*codec)->name), *codec);
    }
}

static void unknown_names_are_not_found(void **state)
{
    (void)state;
    assert_null(dlc_codec_find("f16"));
    assert_null(dlc_codec_find(""));
}

/* The layouts of docs/formats/contribution.md, byte by byte. */
static void the_layouts(void **state)
{
    static const float base[2] = { 1, 0.5f }, params[2] = { 0.25f, 1 };
    static const unsigned char f32[8] = { 0, 0, 0x80, 0x3e, 0, 0, 0x80, 0x3f }, bf16[4] = { 0x40, 0x3f, 0, 0xbf };
    unsigned char got[8];

    (void)state;
    dlc_codec_f32.encode(got, base, params, 2);
    assert_memory_equal(got, f32, 8); /* the parameters 0.25, 1 */
    dlc_codec_bf16.encode(got, base, params, 2);
    assert_memory_equal(got, bf16, 4); /* the differences 0.75, -0.5 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec),
        cmocka_unit_test(unknown_names_are_not_found),
        cmocka_unit_test(the_layouts),
    };

    return cmocka_run_group_tests_name("codec", tests, NULL, NULL);
}
