/* What the end-to-end tests train on: seeded text, prepared data, one tiny configuration. Needs cmocka.h before. */
#ifndef DLC_TESTS_SCENE_H
#define DLC_TESTS_SCENE_H

#include <stddef.h>
#include <stdint.h>

/* About `size_bytes` of made-up English-like documents, one JSON object a line, into scratch/NAME. */
void scene_write_text(const char *name, uint64_t seed, size_t size_bytes);
/* scratch/text.jsonl, and scratch/data made from it with a vocabulary of 400. */
void scene_prepare(void);
/* A TINY run in scratch/NAME that was killed after at least four of its eight outer steps. */
void scene_half_a_run(const char *name);

/* Flags of a model that takes a millisecond a step: --data data, 3 islands, H 5, 40 steps, every step logged. */
#define TINY_MODEL                                                                                                     \
    " --model.layers 1 --model.d_model 32 --model.heads 2 --model.kv_heads 1 --model.head_dim 16 --model.d_ffn 64"     \
    " --model.context 32"
#define TINY_STEPS 40
#define TINY_H 5
#define TINY_ISLANDS 3
#define TINY_BATCH 2
#define TINY                                                                                                           \
    "train --data data" TINY_MODEL " --islands 3 --outer.steps 5 --steps 40 --batch 2 --data.val_tokens 500"           \
    " --train.log_every 1 --system.threads 1"

#endif
