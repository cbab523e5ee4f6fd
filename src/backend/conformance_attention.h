/* The functions of struct op (conformance.h) for the operations of attention. */
#ifndef DLC_BACKEND_CONFORMANCE_ATTENTION_H
#define DLC_BACKEND_CONFORMANCE_ATTENTION_H

#include "backend/conformance.h"

int conformance_attention_fwd_arrays(struct array_spec *s, const size_t *d);
void conformance_attention_fwd_right(double **a, int32_t **index, const size_t *d);
void conformance_attention_fwd_run(dlc_backend *be, void **a, const size_t *d, int bf16);
int conformance_attention_bwd_arrays(struct array_spec *s, const size_t *d);
void conformance_attention_bwd_prepare(double **a, int32_t **index, const size_t *d);
void conformance_attention_bwd_right(double **a, int32_t **index, const size_t *d);
void conformance_attention_bwd_run(dlc_backend *be, void **a, const size_t *d, int bf16);
int conformance_attention_cached_arrays(struct array_spec *s, const size_t *d);
void conformance_attention_cached_right(double **a, int32_t **index, const size_t *d);
void conformance_attention_cached_run(dlc_backend *be, void **a, const size_t *d, int bf16);

#endif
