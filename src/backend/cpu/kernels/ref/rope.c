/* Rotary positions: the pair (x[i], x[i + D/2]) is turned by the angle whose cosine and sine stand in
 * table[position][i]. Turning by the negative angle is the inverse, and the backward pass. */
#include "backend/cpu/kernels.h"

void dlc_rope_ref(float *x, const float *table, size_t r_begin, size_t r_end, size_t T, size_t pos0, size_t heads,
                  size_t D, size_t row, int inverse)
{
    float sign = inverse ? -1 : 1;

    for (size_t r = r_begin; r < r_end; r++) {
        const float *angle = table + (pos0 + r % T) * D;

        for (size_t h = 0; h < heads; h++) {
            float *head = x + r * row + h * D;

            for (size_t i = 0; i < D / 2; i++) {
                float cosine = angle[2 * i], sine = sign * angle[2 * i + 1], a = head[i], b = head[i + D / 2];

                head[i] = a * cosine - b * sine;
                head[i + D / 2] = b * cosine + a * sine;
            }
        }
    }
}
