/* diloco link: a narrow, far, unreliable link to try runs on. src/link is the relay, this reads what was asked for. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/units.h"
#include "cli/verbs.h"
#include "link/relay.h"

struct args {
    struct dlc_common common;
    const char *listen, *to, *rate, *rate_up, *rate_down, *delay, *loss;
    struct dlc_texts cuts, resets;
    uint64_t seed;
};

#define AT(field) offsetof(struct args, field)
#define TEXT(field) DLC_OPTION_TEXT, AT(field)

static const struct dlc_option options[] = {
    { "listen", TEXT(listen), .value = "HOST:PORT", .fallback = "127.0.0.1:0",
      .help = "where to connect to; port 0: any free one, which is printed" },
    { "to", TEXT(to), .value = "HOST:PORT", .help = "where the link leads; needed" },
    { "rate", TEXT(rate), .value = "RATE",
      .help = "of each direction, all connections together: 10mbit; otherwise no limit" },
    { "rate-up", TEXT(rate_up), .value = "RATE", .help = "towards --to, if other than --rate" },
    { "rate-down", TEXT(rate_down), .value = "RATE", .help = "from --to, if other than --rate" },
    { "delay", TEXT(delay), .value = "TIME", .fallback = "0", .help = "one way: 80ms" },
    { "loss", TEXT(loss), .value = "X", .fallback = "0", .help = "part of the segments that are lost: 0.5%, 0.005" },
    { "cut", DLC_OPTION_LIST, AT(cuts), .value = "TIME@TIME",
      .help = "nothing passes for so long, so long after the start: 30s@120s; may be repeated" },
    { "reset", DLC_OPTION_LIST, AT(resets), .value = "TIME",
      .help = "all connections are reset then: 60s; may be repeated" },
    { "seed", DLC_OPTION_SEED, AT(seed), .value = "N", .fallback = "0", .help = "of the losses" },
};

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
    (void)number;
    asked_to_stop = 1;
}

/* No SA_RESTART: waiting is interrupted. */
static void catch_signals(void)
{
    struct sigaction a = { .sa_handler = on_signal };

    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

static dlc_err read_rates(struct dlc_link_config *c, const struct args *a)
{
    if (a->rate) {
        DLC_TRY(dlc_parse_rate(&c->bits_per_s[DLC_LINK_UP], a->rate, "--rate"));
        c->bits_per_s[DLC_LINK_DOWN] = c->bits_per_s[DLC_LINK_UP];
    }
    if (a->rate_up)
        DLC_TRY(dlc_parse_rate(&c->bits_per_s[DLC_LINK_UP], a->rate_up, "--rate-up"));
    if (a->rate_down)
        DLC_TRY(dlc_parse_rate(&c->bits_per_s[DLC_LINK_DOWN], a->rate_down, "--rate-down"));
    return DLC_OK;
}

static dlc_err read_config(struct dlc_link_config *c, const struct args *a, const struct dlc_verb *verb)
{
    *c = (struct dlc_link_config){ .seed = a->seed };
    DLC_TRY(dlc_options_words(&a->common, verb, 0, 0));
    if (!a->to)
        return dlc_fail(DLC_EUSAGE, "--to is missing: diloco %s %s", verb->name, verb->usage);
    DLC_TRY(dlc_link_parse_address(&c->listen, a->listen, true, "--listen"));
    DLC_TRY(dlc_link_parse_address(&c->to, a->to, false, "--to"));
    DLC_TRY(read_rates(c, a));
    DLC_TRY(dlc_parse_duration(&c->delay_s, a->delay, "--delay"));
    DLC_TRY(dlc_link_parse_loss(&c->loss, a->loss, "--loss"));
    for (; c->n_cuts < a->cuts.n; c->n_cuts++)
        DLC_TRY(dlc_link_parse_cut(&c->cuts[c->n_cuts], a->cuts.items[c->n_cuts], "--cut"));
    for (; c->n_resets < a->resets.n; c->n_resets++)
        DLC_TRY(dlc_parse_duration(&c->resets_s[c->n_resets], a->resets.items[c->n_resets], "--reset"));
    return DLC_OK;
}

static const char *brackets(const struct dlc_link_address *a, int i)
{
    return strchr(a->host, ':') ? (i ? "]" : "[") : "";
}

static dlc_err say_where(const struct dlc_link_config *c, int port, bool json)
{
    const struct dlc_link_address *l = &c->listen, *to = &c->to;

    if (json)
        printf("{\"listen\":\"%s%s%s:%d\",\"port\":%d,\"to\":\"%s%s%s:%d\"}\n", brackets(l, 0), l->host, brackets(l, 1),
               port, port, brackets(to, 0), to->host, brackets(to, 1), to->port);
    else
        printf("%s%s%s:%d leads to %s%s%s:%d\n", brackets(l, 0), l->host, brackets(l, 1), port, brackets(to, 0),
               to->host, brackets(to, 1), to->port);
    return fflush(stdout) == 0 ? DLC_OK : dlc_fail_errno(DLC_EIO, "standard output");
}

static void print_text(const struct dlc_link_stats *s)
{
    char up[DLC_UNITS_TEXT], down[DLC_UNITS_TEXT], time[DLC_UNITS_TEXT];

    dlc_format_bytes(up, (double)s->bytes[DLC_LINK_UP]);
    dlc_format_bytes(down, (double)s->bytes[DLC_LINK_DOWN]);
    dlc_format_duration(time, s->seconds);
    printf("%s: %s up, %s down, %d connections (%d refused by the target, %d reset), %" PRIu64 " segments lost\n", time,
           up, down, s->n_connections, s->n_refused, s->n_reset, s->n_lost[0] + s->n_lost[1]);
}

static dlc_err print_json(const struct dlc_link_stats *s)
{
    json_t *v = json_pack("{s:f, s:I, s:I, s:i, s:i, s:i, s:I}", "seconds", s->seconds, "bytes_up",
                          (json_int_t)s->bytes[DLC_LINK_UP], "bytes_down", (json_int_t)s->bytes[DLC_LINK_DOWN],
                          "connections", s->n_connections, "refused", s->n_refused, "reset", s->n_reset,
                          "segments_lost", (json_int_t)(s->n_lost[0] + s->n_lost[1]));

    if (!v)
        return dlc_fail(DLC_ENOMEM, "out of memory: totals of a link");
    json_dumpf(v, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(v);
    return DLC_OK;
}

static dlc_err serve(const struct dlc_link_config *config, const struct args *a)
{
    struct dlc_link_stats stats;
    dlc_link *link;
    dlc_err err;

    catch_signals();
    DLC_TRY(dlc_link_create(&link, config));
    err = a->common.quiet ? DLC_OK : say_where(config, dlc_link_port(link), a->common.json);
    while (err == DLC_OK && !asked_to_stop)
        err = dlc_link_step(link, 1); /* a signal just before the wait is seen a second later */
    dlc_link_stats(link, &stats);
    dlc_link_destroy(link);
    if (err != DLC_OK || a->common.quiet)
        return err;
    if (a->common.json)
        return print_json(&stats);
    print_text(&stats);
    return DLC_OK;
}

static dlc_err run(const struct dlc_verb *verb, int argc, char **argv)
{
    struct args a = { .to = NULL };
    struct dlc_link_config config;

    DLC_TRY(dlc_options_parse(&a, NULL, verb, argc, argv));
    DLC_TRY(read_config(&config, &a, verb));
    return serve(&config, &a);
}

const struct dlc_verb dlc_verb_link = {
    .name = "link",
    .summary = "a slow, far or broken link to try a run on: a TCP relay, without root",
    .usage = "--to HOST:PORT [--listen HOST:PORT] [--rate RATE] [--delay TIME] [--loss X] [--cut TIME@TIME]...",
    .text =
        "Passes TCP connections on to --to, as a worse link would; islands that join at the relay's port have that "
        "link. Runs until\n"
        "SIGINT or SIGTERM, prints where it listens at the start and totals at the end. At most 64 connections at "
        "once.\n\n"
        "  rate   payload bits of each direction, shared by all connections; what does not fit waits at its sender: "
        "a connection\n"
        "         has at most rate x 250 ms (or x two delays, if that is more) + 64 KiB under way\n"
        "  delay  each byte leaves that long after it came, so a round trip takes two of them more\n"
        "  loss   of each 1448 bytes: what follows on that connection and direction waits for a retransmission, two "
        "delays but\n"
        "         at least 200 ms; TCP's slowing down on top of that is not modelled\n"
        "  cut    nothing passes, connections stay open and nobody is told; reset: all connections are reset\n\n"
        "  diloco link --to coordinator.example:4222 --listen 127.0.0.1:5222 --rate 10mbit --delay 80ms\n"
        "  diloco link --to 127.0.0.1:4222 --rate-up 1mbit --rate-down 20mbit --loss 0.5% --cut 30s@120s --reset "
        "200s\n",
    .options = options,
    .n_options = sizeof options / sizeof *options,
    .run = run,
};
