#include "net/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

dlc_err dlc__private_folder(const char *path)
{
    struct stat st;

    DLC_TRY(dlc_mkdir_p(path));
    if (stat(path, &st) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be looked at", path);
    if (st.st_uid != geteuid())
        return dlc_fail(DLC_EINPUT, "%s: belongs to user %ld, and secrets are to be kept in it; remove it", path,
                        (long)st.st_uid);
    if ((st.st_mode & 07777) != 0700 && chmod(path, 0700) != 0)
        return dlc_fail_errno(DLC_EIO, "%s: its mode cannot be set to 0700", path);
    return DLC_OK;
}

static dlc_err write_all(int fd, const char *path, const char *data, size_t size_bytes)
{
    while (size_bytes > 0) {
        ssize_t n = write(fd, data, size_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return dlc_fail_errno(DLC_EIO, "%s: cannot be written", path);
        data += n;
        size_bytes -= (size_t)n;
    }
    return fsync(fd) == 0 ? DLC_OK : dlc_fail_errno(DLC_EIO, "%s: cannot be made durable", path);
}

static dlc_err fsync_parent(const char *path)
{
    char folder[DLC_PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s", path);

    while (n > 0 && folder[n - 1] != '/')
        n--;
    folder[n > 1 ? n - 1 : n] = '\0';
    return dlc_fsync_folder(n > 0 ? folder : ".");
}

dlc_err dlc__private_write(const char *path, const void *data, size_t size_bytes)
{
    char temporary[DLC_PATH_MAX];
    dlc_err err;
    int fd;

    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary)
        return dlc_fail(DLC_EUSAGE, "%s: the path is too long", path);
    unlink(temporary); /* of a process that was killed; the folder is ours alone */
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return dlc_fail_errno(DLC_EIO, "%s: cannot be made", temporary);
    err = write_all(fd, temporary, data, size_bytes);
    close(fd);
    if (err == DLC_OK && rename(temporary, path) != 0)
        err = dlc_fail_errno(DLC_EIO, "%s: cannot be put in place", path);
    if (err != DLC_OK) {
        unlink(temporary);
        return err;
    }
    return fsync_parent(path);
}
