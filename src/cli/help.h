/* What the program says about itself, from the tables of verbs, flags and keys. Text is appended to `out`. */
#ifndef DLC_CLI_HELP_H
#define DLC_CLI_HELP_H

#include "base/buf.h"
#include "cli/options.h"

dlc_err dlc_help_tour(struct dlc_buf *out);
dlc_err dlc_help_verb(struct dlc_buf *out, const struct dlc_verb *verb);
dlc_err dlc_help_markdown(struct dlc_buf *out); /* docs/cli.md: the same on every machine */
dlc_err dlc_help_version(struct dlc_buf *out);

/* The presets with parameters, memory and FLOPs a token: rows "| a | b |" for markdown, columns otherwise. */
dlc_err dlc_help_presets(struct dlc_buf *out, bool markdown);

#endif
