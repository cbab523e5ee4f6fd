/* diloco link, as typed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/run_diloco_test.h"

static void wrong_values_are_one_clear_line(void **state)
{
    static const struct {
        const char *args;
        int status;
        const char *text, *why;
    } rows[] = {
        { "link", 2, "--to is missing", "nowhere to lead to" },
        { "link --to host", 2, "--to: 'host' is no address", "no port" },
        { "link --to host:0", 2, "the port must be 1..65535", "nothing listens at 0" },
        { "link --to ::1:4222", 2, "as in 127.0.0.1:5222 or [::1]:5222", "IPv6 without brackets" },
        { "link --to h:1 --listen 99999", 2, "--listen", "half an address" },
        { "link --to h:1 --rate 10", 2, "--rate: '10' is no rate", "no unit" },
        { "link --to h:1 --rate-up 1mb", 2, "--rate-up", "bits or bytes" },
        { "link --to h:1 --rate-down fast", 2, "--rate-down", "no number" },
        { "link --to 127.0.0.1:1 --rate 0.1bit", 2, "must lie in 1..", "slower than a bit a second" },
        { "link --to h:1 --delay -1", 2, "--delay: '-1' is no duration", "backwards in time" },
        { "link --to 127.0.0.1:1 --delay 2h", 2, "must lie in 0..3600 s", "too far" },
        { "link --to h:1 --loss 100%", 2, "no probability below 1", "nothing passes" },
        { "link --to h:1 --loss many", 2, "--loss: 'many'", "no number" },
        { "link --to h:1 --cut 30s", 2, "as in 30s@120s", "when?" },
        { "link --to h:1 --cut 30@x", 2, "--cut: 'x' is no duration", "when?" },
        { "link --to h:1 --cut 0@1", 2, "takes no time", "an empty cut" },
        { "link --to h:1 --reset soon", 2, "--reset: 'soon'", "no time" },
        { "link --to h:1 word", 2, "one word too many", "a stray word" },
        { "link --to no.such.host.invalid:1", 5, "no.such.host.invalid", "no such name" },
        { "link --to 127.0.0.1:1 --listen 192.0.2.1:0", 5, "--listen: 192.0.2.1 port 0", "not an address of ours" },
        { "link --to h:1 --dealy 1", 2, "did you mean --delay", "mistyped" },
    };
    struct dlc_buf text = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int status = run_diloco(&text, "/", "", rows[i].args, BOTH);

        if (status != rows[i].status || !strstr(text.data, rows[i].text) ||
            strchr(text.data, '\n') != text.data + text.len - 1)
            fail_msg("%s: diloco %s gives %d (expected %d), and says: %s", rows[i].why, rows[i].args, status,
                     rows[i].status, text.data);
    }
    dlc_buf_fini(&text);
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = { .tv_sec = 20 };

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 4) == 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0); /* accept too */
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static json_t *read_line(FILE *f)
{
    char line[1000];
    json_t *v;

    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(dlc_json_parse(&v, line, strlen(line), "a line of diloco link"), DLC_OK);
    return v;
}

/* Sends five bytes through the relay at `port` and sees them at the listener. */
static void pass_five_bytes(int listener, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), far;
    char got[5];

    at.sin_port = htons((uint16_t)port);
    assert_int_equal(connect(near, (struct sockaddr *)&at, sizeof at), 0);
    far = accept(listener, NULL, NULL);
    assert_true(far >= 0);
    assert_int_equal(send(near, "hello", 5, MSG_NOSIGNAL), 5);
    assert_int_equal(recv(far, got, 5, MSG_WAITALL), 5);
    assert_memory_equal(got, "hello", 5);
    close(near);
    close(far);
}

static void it_says_where_and_how_much(void **state)
{
    int target, listener = listen_anywhere(&target), out[2], status;
    char to[40];
    json_t *v;
    FILE *f;
    pid_t pid;

    (void)state;
    snprintf(to, sizeof to, "127.0.0.1:%d", target);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        if (dup2(out[1], STDOUT_FILENO) >= 0)
            execl(getenv("DILOCO"), "diloco", "link", "--to", to, "--rate", "10mbit", "--delay", "5ms", "--json",
                  (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    f = fdopen(out[0], "r");
    v = read_line(f);
    assert_string_equal(json_string_value(json_object_get(v, "to")), to);
    pass_five_bytes(listener, (int)json_integer_value(json_object_get(v, "port")));
    json_decref(v);
    assert_int_equal(kill(pid, SIGTERM), 0);
    v = read_line(f);
    assert_int_equal(json_integer_value(json_object_get(v, "bytes_up")), 5);
    assert_int_equal(json_integer_value(json_object_get(v, "connections")), 1);
    json_decref(v);
    fclose(f);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0); /* a relay has no other end than being stopped */
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_values_are_one_clear_line),
        cmocka_unit_test(it_says_where_and_how_much),
    };

    return cmocka_run_group_tests_name("diloco link", tests, NULL, NULL);
}
