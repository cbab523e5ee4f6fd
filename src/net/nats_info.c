#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "net/probe.h"

/* A text of the server's for our messages: short, and without what a terminal would act on. */
static void copy_text(char *out, size_t size, const json_t *info, const char *key)
{
    const char *text = json_string_value(json_object_get(info, key));

    snprintf(out, size, "%s", text ? text : "");
    for (; *out; out++)
        if (*out < ' ' || *out > '~')
            *out = '?';
}

static dlc_err take(struct dlc_nats_info *out, const json_t *info)
{
    json_int_t max_payload = json_integer_value(json_object_get(info, "max_payload"));

    if (!json_is_object(info) || !json_is_string(json_object_get(info, "version")) || max_payload < 1)
        return dlc_fail(DLC_EPEER, "not a NATS server: its first line lacks version and max_payload");
    copy_text(out->version, sizeof out->version, info, "version");
    copy_text(out->server_name, sizeof out->server_name, info, "server_name");
    out->max_payload = (size_t)max_payload;
    out->tls = json_is_true(json_object_get(info, "tls_required")) || json_is_true(json_object_get(info, "tls_available"));
    return DLC_OK;
}

dlc_err dlc_nats_info_parse(struct dlc_nats_info *out, const char *line, size_t size_bytes)
{
    json_error_t error;
    json_t *info;
    bool out_of_memory;
    dlc_err err;

    memset(out, 0, sizeof *out);
    if (size_bytes < 5 || size_bytes > DLC_NATS_INFO_MAX_BYTES || memcmp(line, "INFO ", 5) != 0)
        return dlc_fail(DLC_EPEER, "not a NATS server: it does not begin with INFO");
    info = dlc_json_load(line + 5, size_bytes - 5, 0, &error, &out_of_memory);
    if (!info && out_of_memory)
        return dlc_fail(DLC_ENOMEM, "a server's first line");
    if (!info)
        return dlc_fail(DLC_EPEER, "not a NATS server: no JSON after INFO");
    err = take(out, info);
    json_decref(info);
    return err;
}
