/* TensorBoard event files, parsed back by a reader written for this test alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "report/tfevents.h"
#include "support/scratch.h"

/* CRC-32C the other way round: polynomial 0x1EDC6F41 most significant bit first, bits of each
 * byte and of the result reflected. */
static uint32_t reflect(uint32_t x, int n_bits)
{
    uint32_t y = 0;
    for (int i = 0; i < n_bits; i++)
        if (x >> i & 1)
            y |= 1u << (n_bits - 1 - i);
    return y;
}

static uint32_t other_crc(const uint8_t *data, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= reflect(data[i], 8) << 24;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x80000000u ? crc << 1 ^ 0x1edc6f41u : crc << 1;
    }
    return reflect(~crc, 32);
}

static uint64_t fixed(const uint8_t *p, int n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

static uint32_t unmask(uint32_t masked)
{
    uint32_t rotated = masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

static uint64_t varint(const uint8_t **p)
{
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte = *(*p)++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
}

struct event {
    double wall_time_s;
    int64_t step;
    char version[32], tag[512];
    float value;
};

static void copy_text(char *out, size_t room, const uint8_t *text, size_t n)
{
    assert_true(n < room);
    memcpy(out, text, n);
    out[n] = '\0';
}

/* A protobuf message at some depth: 0 Event, 1 Summary, 2 Value. */
static void parse_message(const uint8_t *p, size_t n, int depth, struct event *e)
{
    const uint8_t *end = p + n;
    while (p < end) {
        uint64_t key = varint(&p);
        if (depth == 0 && key == (1 << 3 | 1)) {
            memcpy(&e->wall_time_s, p, 8);
            p += 8;
        } else if (depth == 0 && key == (2 << 3 | 0)) {
            e->step = (int64_t)varint(&p);
        } else if (depth == 2 && key == (2 << 3 | 5)) {
            memcpy(&e->value, p, 4);
            p += 4;
        } else {
            assert_int_equal(key & 7, 2);
            size_t n_inner = varint(&p);
            assert_true(n_inner <= (size_t)(end - p));
            if (depth == 0 && key >> 3 == 3)
                copy_text(e->version, sizeof(e->version), p, n_inner);
            else if (depth == 2 && key >> 3 == 1)
                copy_text(e->tag, sizeof(e->tag), p, n_inner);
            else {
                assert_int_equal(key >> 3, depth == 0 ? 5 : 1);
                parse_message(p, n_inner, depth + 1, e);
            }
            p += n_inner;
        }
    }
    assert_ptr_equal(p, end);
}

/* Parses a whole file, checking lengths and CRCs; returns the number of events. */
static size_t parse_file(const char *path, struct event *events, size_t room)
{
    char *text;
    size_t n, n_events = 0;
    assert_int_equal(file_read(path, &text, &n), OK);
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    while (p < end) {
        assert_true(end - p >= 16 && n_events < room);
        size_t n_payload = fixed(p, 8);
        assert_true(n_payload <= (size_t)(end - p) - 16);
        assert_int_equal(unmask((uint32_t)fixed(p + 8, 4)), other_crc(p, 8));
        assert_int_equal(unmask((uint32_t)fixed(p + 12 + n_payload, 4)),
                         other_crc(p + 12, n_payload));
        memset(&events[n_events], 0, sizeof(events[n_events]));
        parse_message(p + 12, n_payload, 0, &events[n_events++]);
        p += 16 + n_payload;
    }
    mem_free(text);
    return n_events;
}

static void crc32c_matches_its_published_check_values(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    memset(bytes, 0, 32);
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43u);
    for (size_t i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (size_t n = 0; n <= 32; n++)
        assert_int_equal(crc32c(bytes, n), other_crc(bytes, n));
}

static void scalars_read_back_in_order(void **state)
{
    (void)state;
    int64_t live = mem_live();
    struct scratch s;
    scratch_init(&s);
    char folder[SCRATCH_PATH], path[SCRATCH_PATH], tag[400];
    scratch_path(&s, "runs/one", folder);
    memset(tag, 't', sizeof(tag) - 1);
    tag[sizeof(tag) - 1] = '\0';

    struct tfevents t;
    assert_int_equal(tfevents_open(&t, folder, 1700000000.25), OK);
    assert_int_equal(tfevents_scalar(&t, 1700000001.5, 0, "train/loss", 2.5f), OK);
    assert_int_equal(tfevents_scalar(&t, 1700000002.5, 127, "train/loss", -0.125f), OK);
    assert_int_equal(tfevents_scalar(&t, 1700000003.5, INT64_MAX, "", 1e-30f), OK);
    assert_int_equal(tfevents_scalar(&t, 1700000004.5, 300, tag, 3.0f), OK);
    assert_int_equal(tfevents_sync(&t), OK);
    (void)snprintf(path, sizeof(path), "%s", t.path);

    /* Read before closing: every record was flushed. */
    struct event e[8];
    assert_int_equal(parse_file(path, e, 8), 5);
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_true(e[0].wall_time_s == 1700000000.25);
    assert_string_equal(e[1].tag, "train/loss");
    assert_true(e[1].value == 2.5f && e[1].step == 0 && e[1].wall_time_s == 1700000001.5);
    assert_true(e[2].value == -0.125f && e[2].step == 127);
    assert_string_equal(e[3].tag, "");
    assert_true(e[3].value == 1e-30f && e[3].step == INT64_MAX);
    assert_string_equal(e[4].tag, tag);
    assert_true(e[4].step == 300 && e[4].version[0] == '\0');
    assert_int_equal(tfevents_close(&t), OK);
    assert_int_equal(tfevents_close(&t), OK);
    scratch_release(&s);
    assert_int_equal(mem_live(), live);
}

static void tags_of_every_length_are_framed_right(void **state)
{
    (void)state;
    enum { N_TAGS = 300 };
    struct scratch s;
    scratch_init(&s);
    struct tfevents t;
    char tag[N_TAGS + 1];
    assert_int_equal(tfevents_open(&t, s.folder, 1700000000), OK);
    memset(tag, 't', sizeof(tag));
    for (int n = 0; n < N_TAGS; n++) {
        tag[n] = '\0';
        assert_int_equal(tfevents_scalar(&t, 1700000000, n, tag, (float)n), OK);
        tag[n] = 't';
    }
    struct event *e = test_malloc((N_TAGS + 1) * sizeof(*e));
    assert_int_equal(parse_file(t.path, e, N_TAGS + 1), N_TAGS + 1);
    for (int n = 0; n < N_TAGS; n++) {
        assert_int_equal(strlen(e[n + 1].tag), n);
        assert_int_equal(e[n + 1].step, n);
        assert_true(e[n + 1].value == (float)n);
    }
    test_free(e);
    assert_int_equal(tfevents_close(&t), OK);
    scratch_release(&s);
}

static void file_names_are_what_tensorboard_looks_for(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    char host[256] = "", want[SCRATCH_PATH];
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    for (int i = 0; i < 3; i++) {
        struct tfevents t;
        assert_int_equal(tfevents_open(&t, s.folder, 1700000000.9), OK);
        (void)snprintf(want, sizeof(want), "%s/events.out.tfevents.1700000000.%s.%ld.%d", s.folder,
                       host, (long)getpid(), i);
        assert_string_equal(t.path, want);
        assert_int_equal(tfevents_close(&t), OK);
    }
    struct tfevents early;
    assert_int_equal(tfevents_open(&early, s.folder, 5), OK);
    assert_non_null(strstr(early.path, "tfevents.0000000005."));
    assert_int_equal(tfevents_close(&early), OK);
    scratch_release(&s);
}

static enum status write_some(const char *folder)
{
    struct tfevents t;
    TRY(tfevents_open(&t, folder, 1700000000));
    enum status status;
    TRY_GOTO(tfevents_scalar(&t, 1700000000, 1, "train/learning_rate/of/something/long", 1), out);
    TRY_GOTO(tfevents_scalar(&t, 1700000000, 2, "train/loss", 1), out);
    TRY_GOTO(tfevents_sync(&t), out);
out:
    if (status != OK)
        (void)!tfevents_close(&t);
    else
        status = tfevents_close(&t);
    return status;
}

static void failures_of_memory_and_disk_are_reported(void **state)
{
    (void)state;
    struct scratch s;
    scratch_init(&s);
    int64_t live = mem_live(), n = 1;
    for (;; n++) {
        mem_fail_after(n, n % 2 == 0);
        enum status status = write_some(s.folder);
        mem_fail_after(0, 0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 2);
    for (n = 1;; n++) {
        file_fail_after(n);
        enum status status = write_some(s.folder);
        file_fail_after(0);
        assert_int_equal(mem_live(), live);
        if (status == OK)
            break;
        assert_int_equal(status, ERR_IO);
        expect_message("events.out.tfevents");
    }
    assert_int_equal(n, 6); /* open, three records, sync */
    struct tfevents t;
    assert_int_equal(tfevents_open(&t, "/dev/null/x", 0), ERR_IO);
    expect_message("/dev/null");
    scratch_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc32c_matches_its_published_check_values),
        cmocka_unit_test(scalars_read_back_in_order),
        cmocka_unit_test(tags_of_every_length_are_framed_right),
        cmocka_unit_test(file_names_are_what_tensorboard_looks_for),
        cmocka_unit_test(failures_of_memory_and_disk_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
