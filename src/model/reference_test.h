/* The model once more, for tests: double precision, plain loops, nothing shared with the product. */
#ifndef DLC_MODEL_REFERENCE_TEST_H
#define DLC_MODEL_REFERENCE_TEST_H

#include "model/model.h"

/* Sum of losses over B sequences of T tokens; P are the parameters in the order of the table. logits [B*T][V] may be
 * NULL. */
double reference_loss(double *logits, const struct dlc_model_config *config, const double *P, const int32_t *tokens,
                      const int32_t *targets, int B, int T);

#endif
