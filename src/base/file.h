/* Files that survive a crash. Rule for everything that matters: write to a temporary name in the same folder, fsync the
 * file, rename, fsync the folder. A reader sees the old content or the new one, never a part. */
#ifndef DLC_BASE_FILE_H
#define DLC_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

#define DLC_PATH_MAX 4096

/* "a/b" joined into `out`; DLC_EUSAGE when it does not fit. */
dlc_err dlc_path_join(char out[DLC_PATH_MAX], const char *folder, const char *name);

bool dlc_file_exists(const char *path);
bool dlc_is_folder(const char *path);
dlc_err dlc_file_size(uint64_t *out, const char *path);

/* Whole file appended to `out` (cleared first). A file above max_bytes is DLC_EINPUT with both sizes in the text;
 * a folder, a missing or unreadable file say so (DLC_EINPUT, DLC_ENOTFOUND, DLC_EIO). */
dlc_err dlc_file_read(struct dlc_buf *out, const char *path, size_t max_bytes);

/* A plain file's bytes, mapped read-only: it may be replaced meanwhile (renamed over), but not be cut. An empty file
 * gives 0 bytes. Errors as dlc_file_read. */
struct dlc_file_map {
    const void *data;
    size_t size_bytes;
};
dlc_err dlc_file_map_open(struct dlc_file_map *out, const char *path);
void dlc_file_map_close(struct dlc_file_map *map); /* also one of zeros */

/* Atomic and durable replacement of a small file. On failure the old content is untouched and no temporary is left. */
dlc_err dlc_file_write_atomic(const char *path, const void *data, size_t size_bytes);

/* The same for large files, written piece by piece:
 *     struct dlc_file_writer w;
 *     DLC_TRY(dlc_file_writer_open(&w, path));
 *     dlc_file_writer_write(&w, ...);        -- any number; errors are kept until the commit
 *     err = dlc_file_writer_commit(&w);      -- fsync, rename, fsync folder; or removes the temporary and reports
 * dlc_file_writer_abort instead of commit leaves nothing behind. */
struct dlc_file_writer {
    FILE *file;
    dlc_err err;
    char path[DLC_PATH_MAX];
    char tmp_path[DLC_PATH_MAX];
};
dlc_err dlc_file_writer_open(struct dlc_file_writer *w, const char *path);
void dlc_file_writer_write(struct dlc_file_writer *w, const void *data, size_t size_bytes);
dlc_err dlc_file_writer_commit(struct dlc_file_writer *w);
/* Instead of the commit: all or nothing for other processes, also when this one is killed, but not yet durable. For
 * what somebody else makes durable when it matters. */
dlc_err dlc_file_writer_place(struct dlc_file_writer *w);
void dlc_file_writer_abort(struct dlc_file_writer *w);

/* A file that was written under another name in the same folder takes its place, durably: fsync, rename, fsync folder.
 * On failure `from` stays. */
dlc_err dlc_file_rename_durable(const char *to, const char *from);

/* Appends one line (a '\n' is added) and fsyncs when `durable`. A torn last line of an earlier crash is the reader's
 * business: readers ignore a last line without '\n'. */
dlc_err dlc_file_append_line(const char *path, const char *line, bool durable);

dlc_err dlc_mkdir_p(const char *path);
dlc_err dlc_fsync_folder(const char *path);
dlc_err dlc_remove_tree(const char *path); /* a missing tree is fine; never follows symbolic links */
dlc_err dlc_copy_file(const char *to, const char *from); /* durable */
dlc_err dlc_link_or_copy(const char *to, const char *from); /* hard link, a copy where links are not possible */

/* Names in a folder (without . and ..), sorted bytewise; free with dlc_names_free. */
struct dlc_names {
    char **names;
    size_t n;
};
dlc_err dlc_list_folder(struct dlc_names *out, const char *path);
void dlc_names_free(struct dlc_names *names);

/* An advisory lock on `path` (created when missing), released by the kernel however the process ends.
 * Held by somebody else: DLC_EINPUT with the holder's process id in the text. */
dlc_err dlc_lock_take(int *out_fd, const char *path);
void dlc_lock_release(int fd); /* accepts -1 */

#endif
