/* Rotary positions; formula in ref/rope.c. The cosines and sines of a position are taken apart once, in pieces that
 * stay on the stack, and used for all heads. */
#include "backend/cpu/kernels/simd/simd.h"

enum { PIECE = 64 };

static void turn_piece(float *a, float *b, const float *cosine, const float *sine, size_t n)
{
    for (size_t i = 0; i < n; i += W) {
        vf u = v_load_upto(a + i, n - i), v = v_load_upto(b + i, n - i);
        vf c = v_load_upto(cosine + i, n - i), s = v_load_upto(sine + i, n - i);

        v_store_upto(a + i, u * c - v * s, n - i);
        v_store_upto(b + i, v * c + u * s, n - i);
    }
}

void DLC_KERNEL(rope)(float *x, const float *table, size_t r_begin, size_t r_end, size_t T, size_t pos0, size_t heads,
                      size_t D, size_t row, int inverse)
{
    float cosine[PIECE], sine[PIECE], sign = inverse ? -1 : 1;
    size_t half = D / 2;

    for (size_t r = r_begin; r < r_end; r++) {
        const float *angle = table + (pos0 + r % T) * D;

        for (size_t first = 0; first < half; first += PIECE) {
            size_t n = half - first < PIECE ? half - first : PIECE;

            for (size_t i = 0; i < n; i++) {
                cosine[i] = angle[2 * (first + i)];
                sine[i] = sign * angle[2 * (first + i) + 1];
            }
            for (size_t h = 0; h < heads; h++) {
                float *head = x + r * row + h * D + first;

                turn_piece(head, head + half, cosine, sine, n);
            }
        }
    }
}
