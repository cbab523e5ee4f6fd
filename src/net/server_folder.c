#include "net/server_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "net/private_file.h"

static dlc_err make_secret(char out[DLC__SECRET_SIZE])
{
    unsigned char bytes[(DLC__SECRET_SIZE - 1) / 2];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return dlc_fail_errno(DLC_EFAIL, "random numbers for a secret");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    explicit_bzero(bytes, sizeof bytes);
    return DLC_OK;
}

/* One line of 64 lower-case hexadecimal digits. */
static bool take_secret(char out[DLC__SECRET_SIZE], const char **at)
{
    size_t n = strspn(*at, "0123456789abcdef");

    if (n != DLC__SECRET_SIZE - 1 || (*at)[n] != '\n')
        return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n + 1;
    return true;
}

static dlc_err read_secrets(struct dlc__secrets *out, const char *path)
{
    struct dlc_buf text = { 0 };
    dlc_err err = dlc_file_read(&text, path, 4096);
    const char *at = text.data;

    if (err == DLC_OK &&
        !(at && take_secret(out->lead, &at) && take_secret(out->isle, &at) && take_secret(out->sys, &at) && !*at))
        err = dlc_fail(DLC_EINPUT, "%s: does not hold three secrets; remove it to make new ones (islands then need the "
                                   "new join line)", path);
    if (text.data)
        explicit_bzero(text.data, text.len);
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc__secrets_load(struct dlc__secrets *out, const char *folder)
{
    char path[DLC_PATH_MAX], text[3 * DLC__SECRET_SIZE + 1];
    dlc_err err;
    int n;

    memset(out, 0, sizeof *out);
    DLC_TRY(dlc_path_join(path, folder, "secrets"));
    if (dlc_file_exists(path))
        return read_secrets(out, path);
    DLC_TRY(make_secret(out->lead));
    DLC_TRY(make_secret(out->isle));
    DLC_TRY(make_secret(out->sys));
    n = snprintf(text, sizeof text, "%s\n%s\n%s\n", out->lead, out->isle, out->sys);
    err = dlc__private_write(path, text, (size_t)n);
    explicit_bzero(text, sizeof text);
    return err;
}

dlc_err dlc__port_load(int *port, const char *folder)
{
    struct dlc_buf text = { 0 };
    char path[DLC_PATH_MAX];
    long value;
    dlc_err err;

    *port = 0;
    DLC_TRY(dlc_path_join(path, folder, "port"));
    if (!dlc_file_exists(path))
        return DLC_OK;
    err = dlc_file_read(&text, path, 64);
    if (err == DLC_OK) {
        value = text.data ? strtol(text.data, NULL, 10) : 0;
        *port = value > 0 && value < 65536 ? (int)value : 0;
    }
    dlc_buf_fini(&text);
    return err;
}

dlc_err dlc__port_save(const char *folder, int port)
{
    char path[DLC_PATH_MAX], text[16];
    int n = snprintf(text, sizeof text, "%d\n", port);

    DLC_TRY(dlc_path_join(path, folder, "port"));
    return dlc__private_write(path, text, (size_t)n);
}

dlc_err dlc__folder_lock(int *out_fd, const char *folder, double patience_s)
{
    double deadline_s = dlc_now_s() + patience_s;
    char path[DLC_PATH_MAX];
    dlc_err err;

    DLC_TRY(dlc_path_join(path, folder, "lock"));
    for (;;) {
        struct timespec moment = { .tv_nsec = 50000000 };

        err = dlc_lock_take(out_fd, path);
        if (err != DLC_EINPUT || dlc_now_s() > deadline_s)
            return err;
        nanosleep(&moment, NULL);
    }
}
