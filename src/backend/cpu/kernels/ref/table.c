#include "backend/cpu/kernels.h"

void dlc_kernels_ref(struct dlc_kernels *k)
{
    *k = (struct dlc_kernels){
        .matmul = dlc_matmul_ref,
        .embed_fwd = dlc_embed_fwd_ref,
        .embed_bwd = dlc_embed_bwd_ref,
        .rmsnorm_fwd = dlc_rmsnorm_fwd_ref,
        .rmsnorm_bwd = dlc_rmsnorm_bwd_ref,
        .rope = dlc_rope_ref,
        .attention_fwd = dlc_attention_fwd_ref,
        .attention_bwd = dlc_attention_bwd_ref,
        .swiglu_fwd = dlc_swiglu_fwd_ref,
        .swiglu_bwd = dlc_swiglu_bwd_ref,
        .cross_entropy = dlc_cross_entropy_ref,
        .add = dlc_add_ref,
        .to_bf16 = dlc_to_bf16_ref,
        .sum_squares = dlc_sum_squares_ref,
        .adamw = dlc_adamw_ref,
        .matvec = dlc_matvec_ref,
        .attention_cached = dlc_attention_cached_ref,
        .from_bf16 = dlc_from_bf16_ref,
        .exp = dlc_exp_ref,
    };
}
