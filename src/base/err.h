/* Errors.
 *
 * Functions that can fail return a dlc_err and leave one line of text, with the values that matter and what to do,
 * in a thread-local buffer. The code decides the exit status of the program, the text is what the user reads.
 *
 *     if (n > max)
 *         return dlc_fail(DLC_EINPUT, "%s: %zu tokens, at most %zu fit; shorten it", path, n, max);
 *
 * Library code never prints and never exits. `assert` is for what only a bug can cause.
 *
 * Clean-up keeps the first error: a second failure while undoing the first is not reported over it.
 */
#ifndef DLC_BASE_ERR_H
#define DLC_BASE_ERR_H

typedef enum {
    DLC_OK = 0,
    DLC_EFAIL = 1,    /* failed: a bug's neighbour, a system call, a full disk          -> exit 1 */
    DLC_EUSAGE = 2,   /* wrong flag, key or value                                       -> exit 2 */
    DLC_ESTOPPED = 3, /* stopped on request, can be resumed                             -> exit 3 */
    DLC_EINPUT = 4,   /* a file that is missing, empty, damaged or does not match       -> exit 4 */
    DLC_EPEER = 5,    /* another process or the network                                 -> exit 5 */
    DLC_ENOMEM = 6,   /* memory                                                         -> exit 1 */
    DLC_EIO = 7,      /* reading or writing failed (errno in the text)                  -> exit 1 */
    DLC_ENOTFOUND = 8 /* asked for and not there; callers often handle it               -> exit 4 */
} dlc_err;

/* Records the text and returns `code`. The text is cut at 1023 bytes; control characters in it become '?'. */
dlc_err dlc_fail(dlc_err code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As dlc_fail, with ": <strerror(errno)>" appended. */
dlc_err dlc_fail_errno(dlc_err code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Puts "<text>: " before the recorded text, and returns `code`: context added while an error travels up. */
dlc_err dlc_fail_context(dlc_err code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The text of this thread's last error; "" when there was none. Valid until the next dlc_fail in this thread. */
const char *dlc_err_text(void);

/* The program's exit status for a code (design: 0 done, 1 failed, 2 usage, 3 resumable, 4 input, 5 peer). */
int dlc_err_exit_status(dlc_err code);

#define DLC_TRY(call)                                                                                                  \
    do {                                                                                                               \
        dlc_err dlc_try_err_ = (call);                                                                                 \
        if (dlc_try_err_ != DLC_OK)                                                                                    \
            return dlc_try_err_;                                                                                       \
    } while (0)

/* For functions with a clean-up label; they keep a variable `dlc_err err`. */
#define DLC_TRY_TO(label, call)                                                                                        \
    do {                                                                                                               \
        err = (call);                                                                                                  \
        if (err != DLC_OK)                                                                                             \
            goto label;                                                                                                \
    } while (0)

#endif
