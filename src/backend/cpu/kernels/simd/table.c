#include "backend/cpu/kernels.h"

void DLC_KERNEL(kernels)(struct dlc_kernels *k)
{
    k->matmul = DLC_KERNEL(matmul);
    k->embed_fwd = DLC_KERNEL(embed_fwd);
    k->embed_bwd = DLC_KERNEL(embed_bwd);
    k->rmsnorm_fwd = DLC_KERNEL(rmsnorm_fwd);
    k->rmsnorm_bwd = DLC_KERNEL(rmsnorm_bwd);
    k->rope = DLC_KERNEL(rope);
    k->attention_fwd = DLC_KERNEL(attention_fwd);
    k->attention_bwd = DLC_KERNEL(attention_bwd);
    k->swiglu_fwd = DLC_KERNEL(swiglu_fwd);
    k->swiglu_bwd = DLC_KERNEL(swiglu_bwd);
    k->cross_entropy = DLC_KERNEL(cross_entropy);
    k->add = DLC_KERNEL(add);
    k->to_bf16 = DLC_KERNEL(to_bf16);
    k->sum_squares = DLC_KERNEL(sum_squares);
    k->adamw = DLC_KERNEL(adamw);
    k->matvec = DLC_KERNEL(matvec);
    k->attention_cached = DLC_KERNEL(attention_cached);
    k->from_bf16 = DLC_KERNEL(from_bf16);
    k->exp = DLC_KERNEL(exp);
}
