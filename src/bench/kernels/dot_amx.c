/* tdpbf16ps: a product of two tiles, 16 x 32 and 32 x 16 values of bf16, added to 16 x 16 sums in f32.
 *
 * The system must have granted tiles to the process before (peaks.c). A product begins every 16 cycles and takes about
 * 52, so four sums are enough; six are used. */
#include <immintrin.h>
#include <stdint.h>

#include "bench/kernels/peak.h"

enum { N_SUMS = 6, ROUNDS = 1 << 16 };

/* Compilers do not see that tiles are loaded from and stored to memory. */
#define USED_BY_TILES(array) __asm__ volatile("" : : "r"(array) : "memory")

struct tile_config { /* as the instruction reads it */
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

double dlc_peak_dot_amx(float *sink)
{
    struct tile_config config = { .palette = 1 };
    uint16_t values[16][32];
    float sums[16][16] = { 0 };

    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = 64;
        config.rows[i] = 16;
    }
    for (int i = 0; i < 16 * 32; i++)
        values[i / 32][i % 32] = 0x3780; /* 2^-16 */
    USED_BY_TILES(&config);
    USED_BY_TILES(values);
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_loadd(6, values, 64);
    _tile_loadd(7, values, 64);
    for (long r = 0; r < ROUNDS; r++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_stored(5, sums, 64);
    USED_BY_TILES(sums);
    _tile_release();
    *sink += sums[0][0];
    return 2.0 * ROUNDS * N_SUMS * 16 * 16 * 32;
}
