/* The check of programs whose storage, sums and saved values are on disk: one copy where the host
 * can follow the device's addresses, two with memory of the host between them where it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "program/damage.h"
#include "program/predict.h"
#include "support/golden.h"
#include "support/planned_apart.h"

static struct planned_apart devices;

static int open_devices(void **state)
{
    (void)state;
    planned_apart_open(&devices);
    return 0;
}

static int close_devices(void **state)
{
    (void)state;
    planned_apart_close(&devices);
    return 0;
}

static struct setup on_disk(const struct device *d, int64_t ring_bytes)
{
    return (struct setup){.options = {.golden = "gpt2", .batch = 1, .seq_len = 4, .device = d},
                          .ring_bytes = ring_bytes,
                          .away = TIER_DISK};
}

static int count_copies(const struct program *p, enum tier from, enum tier to)
{
    int n = 0;
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        const struct operand *o = &p->operands.items[i->first_operand];
        n += i->kind == INSTR_COPY && o[0].tier == from && o[1].tier == to &&
             (from != TIER_DISK || i->queue == QUEUE_DISK);
    }
    return n;
}

static void what_is_on_disk_goes_by_the_host_where_it_must(void **state)
{
    struct training t;
    (void)state;
    struct setup s = on_disk(&devices.device, 0);
    damage_open(&t, &s);
    int n = count_copies(t.stage->program, TIER_DISK, TIER_DEVICE);
    assert_true(n > 0 && count_copies(t.stage->program, TIER_DEVICE, TIER_DISK) > 0);
    assert_int_equal(count_copies(t.stage->program, TIER_DISK, TIER_HOST), 0);
    training_release(&t);
    s = on_disk(&devices.apart, 0);
    damage_open(&t, &s);
    assert_int_equal(count_copies(t.stage->program, TIER_DISK, TIER_HOST), n);
    assert_int_equal(count_copies(t.stage->program, TIER_DISK, TIER_DEVICE), 0);
    assert_int_equal(count_copies(t.stage->program, TIER_DEVICE, TIER_DISK), 0);
    assert_true(count_copies(t.stage->program, TIER_HOST, TIER_DISK) > 0);
    training_release(&t);
}

/* Seconds of all copies from disk (to: onto it), alone. */
static double disk_seconds(const struct program *p, const struct device *d, bool to)
{
    struct prediction x;
    double seconds = 0;
    expect_ok(predict(&x, p, d, NULL));
    for (size_t k = 0; k < p->instrs.n; k++) {
        const struct instr *i = &p->instrs.items[k];
        const struct operand *o = &p->operands.items[i->first_operand];
        if (i->kind == INSTR_COPY && o[to].tier == TIER_DISK)
            seconds += x.seconds[k];
    }
    prediction_release(&x);
    return seconds;
}

/* Reads and writes stand in turns: as many bytes as go both ways go at the rates of that. */
static void a_disk_that_is_slower_in_turns_is_predicted_so(void **state)
{
    struct training t;
    struct device d = devices.device;
    struct link_rate *in = &d.rates.links[TIER_DISK][TIER_DEVICE],
                     *out = &d.rates.links[TIER_DEVICE][TIER_DISK];
    (void)state;
    struct setup s = on_disk(&devices.device, 0);
    damage_open(&t, &s);
    const struct program *p = t.stage->program;
    *in = (struct link_rate){.alone = 2e6, .both = 2e6};
    *out = (struct link_rate){.alone = 1e6, .both = 1e6};
    double read = disk_seconds(p, &d, false), written = disk_seconds(p, &d, true);
    in->both = 1e6;
    double slower = disk_seconds(p, &d, false);
    /* Twice as long for as many as are written; all of what is written is as many as are read. */
    assert_true(slower > 1.2 * read && slower <= 2.0 * read);
    assert_true(disk_seconds(p, &d, true) == written);
    out->both = 0.5e6;
    assert_true(disk_seconds(p, &d, true) > 1.5 * written);
    training_release(&t);
}

/* By way of the host: that has all the events that one copy has, and those between the two. */
static void every_missing_event_that_matters_is_noticed(void **state)
{
    (void)state;
    struct setup s = on_disk(&devices.apart, 4 << 10);
    s.one_in = 7;
    damage_events(&s);
}

static void damaged_programs_are_rejected_or_harmless(void **state)
{
    (void)state;
    struct setup s = on_disk(&devices.device, 4 << 10);
    damage_program(&s, drop_each_instruction, "dropped instructions");
}

/* Each fetch from disk, as it stands, before the copy that put there what it reads. */
static void fetch_each_too_early(struct tally *c)
{
    struct program *p = c->t->stage->program;
    const struct section *s = &p->sections.items[0];
    for (int32_t k = s->first; k < s->first + s->n; k++) {
        const struct instr fetch = p->instrs.items[k];
        const struct operand *o = &p->operands.items[fetch.first_operand];
        int32_t put = -1;
        for (int32_t i = s->first; fetch.kind == INSTR_COPY && o[0].tier == TIER_DISK && i < k;
             i++) {
            const struct instr *copy = &p->instrs.items[i];
            const struct operand *x = &p->operands.items[copy->first_operand];
            if (copy->kind == INSTR_COPY && x[1].tier == TIER_DISK && x[1].offset == o[0].offset)
                put = i;
        }
        if (put < 0)
            continue;
        for (int32_t i = k; i > put; i--)
            p->instrs.items[i] = p->instrs.items[i - 1];
        p->instrs.items[put] = fetch;
        damage_expect_rejected(c, "a fetch that comes too early", k);
        for (int32_t i = put; i < k; i++)
            p->instrs.items[i] = p->instrs.items[i + 1];
        p->instrs.items[k] = fetch;
    }
}

static void what_is_not_there_yet_is_not_fetched(void **state)
{
    (void)state;
    struct setup s = on_disk(&devices.device, 0);
    damage_program(&s, fetch_each_too_early, "fetched too early");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_disk_goes_by_the_host_where_it_must),
        cmocka_unit_test(a_disk_that_is_slower_in_turns_is_predicted_so),
        cmocka_unit_test(every_missing_event_that_matters_is_noticed),
        cmocka_unit_test(damaged_programs_are_rejected_or_harmless),
        cmocka_unit_test(what_is_not_there_yet_is_not_fetched),
    };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
