/* Bounds-checked reading and writing of little-endian bytes. Encode and decode of a layout stand in one file and read
 * like the layout. A cursor that once went past its end stays failed: check dlc_cursor_ok() once, at the end.
 *
 *     struct dlc_cursor c = dlc_cursor(bytes, n);
 *     magic = dlc_get_u32(&c); count = dlc_get_u64(&c);
 *     if (!dlc_cursor_ok(&c) || magic != MAGIC) return dlc_fail(DLC_EINPUT, ...);
 */
#ifndef DLC_BASE_CURSOR_H
#define DLC_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dlc_cursor {
    unsigned char *at;
    size_t left;
    bool failed;
};

static inline struct dlc_cursor dlc_cursor(const void *bytes, size_t n)
{
    return (struct dlc_cursor){ .at = (unsigned char *)(uintptr_t)bytes, .left = n, .failed = false };
}

static inline bool dlc_cursor_ok(const struct dlc_cursor *c)
{
    return !c->failed;
}

/* The next n bytes, or NULL (and failed) when there are fewer. */
static inline unsigned char *dlc_cursor_take(struct dlc_cursor *c, size_t n)
{
    unsigned char *p = c->at;

    if (c->failed || n > c->left) {
        c->failed = true;
        return NULL;
    }
    c->at += n;
    c->left -= n;
    return p;
}

static inline uint64_t dlc_get_uint(struct dlc_cursor *c, size_t n)
{
    const unsigned char *p = dlc_cursor_take(c, n);
    uint64_t v = 0;

    if (!p)
        return 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static inline void dlc_put_uint(struct dlc_cursor *c, uint64_t v, size_t n)
{
    unsigned char *p = dlc_cursor_take(c, n);

    if (!p)
        return;
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static inline uint8_t dlc_get_u8(struct dlc_cursor *c) { return (uint8_t)dlc_get_uint(c, 1); }
static inline uint16_t dlc_get_u16(struct dlc_cursor *c) { return (uint16_t)dlc_get_uint(c, 2); }
static inline uint32_t dlc_get_u32(struct dlc_cursor *c) { return (uint32_t)dlc_get_uint(c, 4); }
static inline uint64_t dlc_get_u64(struct dlc_cursor *c) { return dlc_get_uint(c, 8); }
static inline void dlc_put_u8(struct dlc_cursor *c, uint8_t v) { dlc_put_uint(c, v, 1); }
static inline void dlc_put_u16(struct dlc_cursor *c, uint16_t v) { dlc_put_uint(c, v, 2); }
static inline void dlc_put_u32(struct dlc_cursor *c, uint32_t v) { dlc_put_uint(c, v, 4); }
static inline void dlc_put_u64(struct dlc_cursor *c, uint64_t v) { dlc_put_uint(c, v, 8); }

static inline double dlc_get_f64(struct dlc_cursor *c)
{
    uint64_t bits = dlc_get_u64(c);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline void dlc_put_f64(struct dlc_cursor *c, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    dlc_put_u64(c, bits);
}

static inline void dlc_get_bytes(struct dlc_cursor *c, void *out, size_t n)
{
    const unsigned char *p = dlc_cursor_take(c, n);

    if (p)
        memcpy(out, p, n);
}

static inline void dlc_put_bytes(struct dlc_cursor *c, const void *bytes, size_t n)
{
    unsigned char *p = dlc_cursor_take(c, n);

    if (p)
        memcpy(p, bytes, n);
}

#endif
