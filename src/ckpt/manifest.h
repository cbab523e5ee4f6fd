/* manifest.json of a checkpoint: which files it has, their sizes and digests, and the caller's `info`. Written last;
 * its own bytes are covered too, by a digest that is the first member:
 *
 *     {
 *       "self_sha256": "<SHA-256 of this file's bytes with these 64 digits as zeros>",
 *       "outer_step": 40,
 *       "files": { "model.safetensors": { "bytes": 123, "sha256": "..." }, ... },
 *       "info": ...
 *     }
 *
 * Inside src/ckpt only; others see ckpt.h. */
#ifndef DLC_CKPT_MANIFEST_H
#define DLC_CKPT_MANIFEST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DLC__MANIFEST_NAME "manifest.json"

/* Hashes every file of `folder`, makes each durable and writes the manifest. A folder or special file among them is
 * DLC_EFAIL. `info` is borrowed, may be NULL. */
dlc_err dlc__manifest_write(const char *folder, uint64_t outer_step, const json_t *info);

/* *out is the caller's. What comes back has passed dlc__manifest_check and the digest of its own bytes. */
dlc_err dlc__manifest_read(json_t **out, const char *folder);
dlc_err dlc__manifest_parse(json_t **out, const char *text, size_t size_bytes, const char *where);

/* Every member is there, typed and in range, and no name leaves the folder. */
dlc_err dlc__manifest_check(const json_t *manifest, const char *where);

/* The files in `folder` against the manifest: there, plain and of the right size; with `hash` also of the right digest.
 * DLC_EINPUT names the first that is not. */
dlc_err dlc__manifest_compare(const json_t *manifest, const char *folder, int hash);

#endif
