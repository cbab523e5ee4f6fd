/* What makes an outer step last: checkpoint, record, `latest`; and the way back.
 *
 * Order at outer step t: the checkpoint folder is complete and durable (its manifest holds record t too), then the
 * record is appended to records.jsonl, then `latest` moves. Cut off anywhere, the newest complete checkpoint is the
 * state to go on from: a record missing in records.jsonl is taken from the manifest, records beyond the checkpoint are
 * trained again and compared. */
#ifndef DLC_TRAIN_SAVE_H
#define DLC_TRAIN_SAVE_H

#include <jansson.h>

#include "base/buf.h"
#include "config/config.h"
#include "exchange/exchange.h"
#include "outer/record.h"
#include "train/run_folder.h"

struct dlc_saver {
    const struct dlc_config *config;
    const char *run_folder;
    int n_state;     /* arrays of the outer optimizer: 0, 1 or 2 */
    float *state[2]; /* outer optimizer's arrays [N] */
    struct dlc_buf tokenizer_json;
    int32_t eot;
    struct dlc_traffic *traffic; /* [dlc_config_n_identities], kept over restarts */
    struct dlc_records expected; /* of a history that is trained again; items beyond the checkpoint */
    uint64_t n_expected_from;    /* steps up to here are in records.jsonl for good */
};

/* The whole of it, for one outer step. `last`: the run's last one, always a checkpoint. */
dlc_err dlc_saver_commit(struct dlc_saver *s, const struct dlc_record *record, const json_t *saved, const float *theta,
                         bool last);

/* State to go on from: *saved (new reference), *last record, theta[t & 1] and state filled, island folders seeded,
 * records.jsonl and the saver's traffic put in order. *t 0: nothing committed yet, nothing filled. */
dlc_err dlc_saver_restore(struct dlc_saver *s, const char *run_id, uint64_t *t, json_t **saved, struct dlc_record *last,
                          float *const theta[2]);

void dlc_saver_fini(struct dlc_saver *s);

#endif
