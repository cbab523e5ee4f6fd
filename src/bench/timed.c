#include "bench/timed.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "bench/ops_list.h"

#define OP_ID(name, ...) OP_##name,
enum { DLC_OPS_LIST(OP_ID) N_OPS };

static void book(struct dlc_timed *t, const struct dlc_timed_row *call, double seconds)
{
    struct dlc_timed_row *row = t->rows, *end = t->rows + t->n_rows;

    while (row < end &&
           (row->op != call->op || row->roof != call->roof || memcmp(row->sizes, call->sizes, sizeof row->sizes) != 0))
        row++;
    if (row == end) {
        if (t->n_rows == DLC_TIMED_MAX_ROWS)
            return;
        *row = *call;
        row->best_s = seconds;
        t->n_rows++;
    }
    row->n_calls++;
    row->seconds += seconds;
    if (seconds < row->best_s)
        row->best_s = seconds;
}

static struct dlc_timed *timed_of(const dlc_backend *be)
{
    static_assert(offsetof(struct dlc_timed, ops) == 0, "the table is where the pointer to it points");
    return (struct dlc_timed *)(uintptr_t)be->ops;
}

#define UNWRAP(...) __VA_ARGS__
#define CALL_void(call, booking)                                                                                       \
    call;                                                                                                              \
    booking
#define CALL_double(call, booking)                                                                                     \
    double result = call;                                                                                              \
                                                                                                                       \
    booking;                                                                                                           \
    return result

#define TIMED(name, returns, params, args, its_roof, its_amount, ...)                                                  \
    static returns timed_##name(dlc_backend *be, UNWRAP params)                                                        \
    {                                                                                                                  \
        struct dlc_timed *t = timed_of(be);                                                                            \
        struct dlc_timed_row booked = {                                                                                \
            .op = OP_##name, .roof = its_roof, .sizes = { __VA_ARGS__ }, .amount = its_amount                          \
        };                                                                                                             \
        double begin = dlc_now_s();                                                                                    \
                                                                                                                       \
        CALL_##returns(t->inner->name(be, UNWRAP args), book(t, &booked, dlc_now_s() - begin));                        \
    }
DLC_OPS_LIST(TIMED)

void dlc_timed_begin(struct dlc_timed *t, dlc_backend *be)
{
    t->be = be;
    t->inner = be->ops;
    t->ops = *be->ops;
#define SET(name, ...) t->ops.name = timed_##name;
    DLC_OPS_LIST(SET)
    be->ops = &t->ops;
}

void dlc_timed_end(struct dlc_timed *t)
{
    assert(t->be->ops == &t->ops);
    t->be->ops = t->inner;
}

void dlc_timed_clear(struct dlc_timed *t)
{
    for (size_t i = 0; i < t->n_rows; i++) {
        t->rows[i].n_calls = 0;
        t->rows[i].seconds = 0;
    }
}

#define OP_NAME(name, ...) #name,
#define OP_SIZES(name, returns, params, args, roof, amount, ...) #__VA_ARGS__,
static const char *const op_names[] = { DLC_OPS_LIST(OP_NAME) };
static const char *const op_sizes[] = { DLC_OPS_LIST(OP_SIZES) };

const char *dlc_timed_op_name(int op)
{
    assert(op >= 0 && op < N_OPS);
    return op_names[op];
}

void dlc_timed_shape(char *out, size_t size, const struct dlc_timed_row *row)
{
    const char *name = op_sizes[row->op];
    size_t at = 0;

    for (int i = 0; *name && at < size; i++) {
        int length;

        name += strncmp(name, "shape->", 7) == 0 ? 7 : 0;
        length = (int)strcspn(name, ",");
        at += (size_t)snprintf(out + at, size - at, "%s%.*s=%zu", i ? " " : "", length, name, row->sizes[i]);
        name += length;
        name += strspn(name, ", ");
    }
}
