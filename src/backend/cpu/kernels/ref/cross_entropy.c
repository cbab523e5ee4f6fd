/* loss = log sum_v exp(x[v]) - x[target];  gradient: (softmax(x)[v] - [v = target]) dscale, in place of x. */
#include <math.h>

#include "backend/cpu/kernels.h"

void dlc_cross_entropy_ref(float *loss, float *logits, const int32_t *targets, size_t R, size_t V, float dscale)
{
    for (size_t r = 0; r < R; r++) {
        float *x = logits + r * V;
        double max = -INFINITY, sum = 0, lse;

        for (size_t v = 0; v < V; v++)
            max = fmax(max, x[v]);
        for (size_t v = 0; v < V; v++)
            sum += exp(x[v] - max);
        lse = max + log(sum);
        loss[r] = (float)(lse - x[targets[r]]);
        if (dscale == 0)
            continue;
        for (size_t v = 0; v < V; v++)
            x[v] = (float)((exp(x[v] - lse) - (v == (size_t)targets[r])) * dscale);
    }
}
