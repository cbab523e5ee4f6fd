/* Messages to people, on standard error. One line each; DLC_LOG_INFO is silenced by --quiet, warnings are not.
 * Standard output is for results only. */
#ifndef DLC_BASE_LOG_H
#define DLC_BASE_LOG_H

#include <stdbool.h>

typedef enum {
    DLC_LOG_DEBUG,
    DLC_LOG_INFO,
    DLC_LOG_WARN,
    DLC_LOG_ERROR,
    DLC_LOG_NOTHING /* as the lowest shown: not even errors */
} dlc_log_level;

void dlc_log_set_level(dlc_log_level lowest_shown); /* default DLC_LOG_INFO */
bool dlc_log_shows(dlc_log_level level);
void dlc_log(dlc_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define dlc_debug(...) dlc_log(DLC_LOG_DEBUG, __VA_ARGS__)
#define dlc_info(...) dlc_log(DLC_LOG_INFO, __VA_ARGS__)
#define dlc_warn(...) dlc_log(DLC_LOG_WARN, __VA_ARGS__)

#endif
