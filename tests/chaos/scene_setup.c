#include "scene_setup.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "storm.h"

#define TEXT_BYTES 300000
#define CALIBRATION_STEPS 1500
#define BATCH 2
#define MODEL                                                                                                          \
    "--model.layers 1 --model.d_model 32 --model.heads 2 --model.kv_heads 1 --model.head_dim 16 --model.d_ffn 64 "     \
    "--model.context 32 --batch 2 --data.val_tokens 500 --system.threads 1"

static dlc_err write_text(const char *path)
{
    static const char *const words[] = { "island", "sends", "one", "outer", "step", "after", "many",
                                         "of",     "its",   "own", "the",   "mean", "is",    "then",
                                         "what",   "all",   "go",  "on",    "from", "." };
    struct dlc_rng rng = { .seed = 1 };
    struct dlc_buf text = { 0 };
    dlc_err err = DLC_OK;
    uint64_t word = 0;

    while (err == DLC_OK && text.len < TEXT_BYTES) {
        word = dlc_rng_below(&rng, 10) < 7 ? (word * 7 + dlc_rng_below(&rng, 3)) % 20 : dlc_rng_below(&rng, 20);
        err = dlc_buf_printf(&text, "{\"text\":\"%s", words[word]);
        for (int i = 0; err == DLC_OK && i < 60; i++) {
            word = dlc_rng_below(&rng, 10) < 7 ? (word * 7 + dlc_rng_below(&rng, 3)) % 20 : dlc_rng_below(&rng, 20);
            err = dlc_buf_printf(&text, " %s", words[word]);
        }
        if (err == DLC_OK)
            err = dlc_buf_printf(&text, "\"}\n");
    }
    if (err == DLC_OK)
        err = dlc_file_write_atomic(path, text.data, text.len);
    dlc_buf_fini(&text);
    return err;
}

dlc_err scene_make_data(const char *program, const char *folder)
{
    char path[DLC_PATH_MAX], args[3 * DLC_PATH_MAX];

    DLC_TRY(dlc_path_join(path, folder, "text.jsonl"));
    DLC_TRY(write_text(path));
    snprintf(args, sizeof args, "prepare %s --out %s/data --vocab-size 300 --val-fraction 0.1 --threads 1", path,
             folder);
    return actor_run(folder, "prepare", program, args);
}

dlc_err scene_step_seconds(double *out, const char *program, const char *folder)
{
    char args[2 * DLC_PATH_MAX + 1000], path[DLC_PATH_MAX];
    double begin_s = dlc_now_s();

    snprintf(args, sizeof args,
             "train --data %s/data --out %s/calibration %s --islands 1 --outer.steps %d --steps %d --quiet", folder,
             folder, MODEL, CALIBRATION_STEPS, CALIBRATION_STEPS);
    DLC_TRY(actor_run(folder, "calibration", program, args));
    *out = (dlc_now_s() - begin_s) / CALIBRATION_STEPS;
    DLC_TRY(dlc_path_join(path, folder, "calibration"));
    return dlc_remove_tree(path);
}

dlc_err scene_start_coordinator(struct actor *a, const struct storm_config *config, const char *program,
                                const char *folder, int port, int64_t H)
{
    char args[4000];
    int n = config->plan.n_islands;
    int64_t n_rounds = config->n_rounds ? config->n_rounds : STORM_MAX_RECORDS;
    int least = config->wait_for_all ? n : 1;

    snprintf(a->who, sizeof a->who, "coordinator");
    if (snprintf(args, sizeof args,
                 "coordinate --data %s/data --out %s/run %s --seed 1 --outer.steps %lld --steps %lld --min-islands %d "
                 "--quorum %d --exchange.max_islands %d --listen 127.0.0.1:%d --loopback",
                 folder, folder, MODEL, (long long)H, (long long)(H * n_rounds), least, least, n,
                 port) >= (int)sizeof args)
        return dlc_fail(DLC_EUSAGE, "the folder's name is too long: %s", folder);
    return actor_start(a, folder, program, args);
}

dlc_err scene_start_island(struct actor *a, const char *program, const char *folder, int number, const char *url)
{
    char args[4000];

    snprintf(a->who, sizeof a->who, "island-%02d", number);
    if (snprintf(args, sizeof args, "join %s --data %s/data --out %s/%s --name %s --system.threads 1 --json", url,
                 folder, folder, a->who, a->who) >= (int)sizeof args)
        return dlc_fail(DLC_EUSAGE, "the folder's name is too long: %s", folder);
    return actor_start(a, folder, program, args);
}

bool scene_join_url(char *out, size_t size, const char *coordinator_out)
{
    struct dlc_buf text = { 0 };
    char *at, *end;
    bool found = false;

    if (!dlc_file_exists(coordinator_out))
        return false;
    at = dlc_file_read(&text, coordinator_out, 1 << 24) == DLC_OK && text.len ? strstr(text.data, "nats") : NULL;
    if (at && strchr(at, '\n')) {
        end = at + strcspn(at, "'\" \n");
        found = (size_t)(end - at) < size;
        snprintf(out, size, "%.*s", (int)(end - at), at);
    }
    dlc_buf_fini(&text);
    return found;
}

void scene_read_indices(int *index, int n, const char *run_folder)
{
    char path[DLC_PATH_MAX];
    json_t *v = NULL, *item;
    size_t at;

    for (int i = 0; i < n; i++)
        index[i] = i;
    if (dlc_path_join(path, run_folder, "islands.json") != DLC_OK || dlc_json_read_file(&v, path, 1 << 24) != DLC_OK)
        return;
    json_array_foreach(json_object_get(v, "islands"), at, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));

        for (int i = 0; name && i < n; i++) {
            char who[32];

            snprintf(who, sizeof who, "island-%02d", i);
            if (strcmp(name, who) == 0)
                index[i] = (int)at;
        }
    }
    json_decref(v);
}

dlc_err scene_free_port(int *out)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok =
        fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && getsockname(fd, (struct sockaddr *)&at, &size) == 0;

    if (fd >= 0)
        close(fd);
    *out = ntohs(at.sin_port);
    return ok ? DLC_OK : dlc_fail_errno(DLC_EFAIL, "a free port");
}

bool scene_has_verb(const char *program, const char *verb, const char *folder)
{
    char args[100];

    snprintf(args, sizeof args, "%s --help", verb);
    return actor_run(folder, "help", program, args) == DLC_OK;
}
