/* A run from configuration to the last outer step: what dlc_train does, in parts. */
#ifndef DLC_TRAIN_RUN_H
#define DLC_TRAIN_RUN_H

#include "backend/backend.h"
#include "exchange/inproc.h"
#include "exchange/local.h"
#include "island/trainer.h"
#include "train/coordinator.h"
#include "train/evaluate.h"
#include "train/processes.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/save.h"
#include "train/serve.h"
#include "train/train.h"

struct dlc_run {
    struct dlc_config *config; /* resolved */
    struct dlc_train_options options;
    struct dlc_run_identity identity;
    struct dlc_coord_config core_config;
    int lock_fd;

    dlc_dataset *data;
    dlc_backend *backend; /* merge and validation: all cores, while the islands wait or share */
    dlc_model *eval_model;
    dlc_evaluator *evaluator;

    dlc_local *local; /* exchange.kind local */
    dlc_processes *processes;
    dlc_inproc *inproc; /* exchange.kind inproc */
    struct dlc_run_inproc *islands;
    dlc_serve *serve; /* exchange.kind nats: islands come and go */
    dlc_hub *hub;

    float *theta[2], *state[2];
    dlc_coord *core;
    dlc_coordinator *coordinator;
    struct dlc_saver saver;
    dlc_progress *progress;
    struct dlc_memory_use memory;

    bool evaluating; /* the evaluator is in the middle of theta(eval_t) */
    uint64_t eval_t;
    int64_t eval_step;
    double first_arrival_s, last_progress_s; /* of the open round; 0: none yet */
    double started_s[1024]; /* of each island's process */
    int deaths[1024]; /* of an island in a row, without an outer step in between */
    struct dlc_record last; /* without its lists */
};

/* Everything up to the first message; resumes when the folder has history. */
dlc_err dlc_run_open(struct dlc_run *run, struct dlc_config *config, const struct dlc_train_options *options);
/* Until the last outer step is durable (DLC_OK) or a signal stopped it (DLC_ESTOPPED). */
dlc_err dlc_run_loop(struct dlc_run *run);
void dlc_run_close(struct dlc_run *run);

/* Islands in this process, all in this thread (run_inproc.c). */
dlc_err dlc_run_inproc_open(struct dlc_run *run);
dlc_err dlc_run_inproc_work(struct dlc_run *run, bool *idle); /* a unit of work for each island that has some */
void dlc_run_inproc_close(struct dlc_run *run);

/* How the validation model is made. */
struct dlc_model_options dlc_run_eval_options(const struct dlc_run *run);

/* First lines of a run: parameters, FLOPs a token, memory by purpose; DLC_EFAIL when it cannot fit. */
dlc_err dlc_run_say_plan(struct dlc_run *run);

#endif
