/* y[r] = table[token[r]];  dtable[token[r]] += dy[r]. A token may occur in several rows: they are added in order. */
#include "backend/cpu/kernels.h"

void DLC_KERNEL(embed_fwd)(float *y, const int32_t *tokens, const float *table, size_t R, size_t C)
{
    for (size_t r = 0; r < R; r++)
        memcpy(y + r * C, table + (size_t)tokens[r] * C, C * sizeof *y);
}

void DLC_KERNEL(embed_bwd)(float *dtable, const int32_t *tokens, const float *dy, size_t R, size_t C, size_t c_begin,
                           size_t c_end)
{
    for (size_t r = 0; r < R; r++) {
        float *restrict to = dtable + (size_t)tokens[r] * C;
        const float *restrict from = dy + r * C;

        for (size_t c = c_begin; c < c_end; c++)
            to[c] += from[c];
    }
}
