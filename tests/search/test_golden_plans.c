/* Plans as they were: for cards that are not here, in budgets from roomy to impossible. A search
 * that has become worse still gives plans that fit; here it shows in what they are. Where that is
 * meant, tools/make_golden_plans.sh writes the file anew, and its difference is for the reader.
 *
 * Nothing of the machine enters: memory around the process, rates of the disk and the clock that
 * advice goes by are the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "device/disk/disk.h"
#include "search/surroundings.h"
#include "support/plan_record.h"
#include "support/scratch.h"

#define GOLDEN "tests/golden/plans/plans.txt"

/* ---- a machine that is the same everywhere --------------------------------------------------- */

void __wrap_surroundings_read(struct surroundings *s, struct device *d);
void __wrap_surroundings_read(struct surroundings *s, struct device *d)
{
    const int64_t gib = (int64_t)1 << 30;
    *s = (struct surroundings){
        .resident_bytes = 8 << 20,
        .peak_bytes = 16 << 20,
        .host = {.whose = "the machine", .total_bytes = 64 * gib, .free_bytes = 60 * gib},
        .disk = {.whose = "the disk", .is_host = true}};
    assert_int_equal(d->ops->room(d, &s->room), OK);
    if (d->disk)
        s->disk.total_bytes = s->disk.free_bytes = 1000 * gib;
}

enum status __wrap_disk_measure(struct disk *d, struct disk_rates *out);
enum status __wrap_disk_measure(struct disk *d, struct disk_rates *out)
{
    (void)d;
    *out = (struct disk_rates){6e9, 3e9, 4e9, 2e9, 1e-4, 5e-5};
    return OK;
}

enum status __wrap_disk_measure_long(struct disk *d, int64_t n_bytes, struct disk_rates *rates);
enum status __wrap_disk_measure_long(struct disk *d, int64_t n_bytes, struct disk_rates *rates)
{
    (void)n_bytes;
    return __wrap_disk_measure(d, rates);
}

double __wrap_thread_s(void);
double __wrap_thread_s(void)
{
    return 0;
}

/* ---- the cases ------------------------------------------------------------------------------- */

#define GPT2  "configs/gpt2-124m.yaml"
#define LLAMA "configs/llama-1b.yaml"
#define MOE   "configs/qlora-moe-24gb.yaml"
#define QLORA "configs/qlora-8b-8gb.yaml"
#define CNN   "configs/cnn.yaml"
#define WIDE  "configs/wide_autoencoder.yaml"

static const struct plan_case gpt2_cases[] = {
    {"all of it fits", "h200", GPT2,
     "model.n_layer=3 bf16=true device_memory=8GiB host_memory=4GiB", true},
    {"f32, some recomputed", "rtx3060", GPT2, "model.n_layer=3 device_memory=2GiB host_memory=4GiB",
     false},
    {"most of it away", "rtx3060", GPT2,
     "model.n_layer=3 bf16=true device_memory=1GiB host_memory=4GiB", false},
};

struct family {
    const struct plan_case *cases;
    size_t n;
};

#define FAMILY(cases)           \
    {                           \
        cases, ARRAY_LEN(cases) \
    }
static const struct family families[] = {FAMILY(gpt2_cases)};

/* ---- comparing ------------------------------------------------------------------------------- */

/* The part of the file that is a case's: from its first line to an empty one. */
static void find_case(const char *golden, const char *name, struct str *out)
{
    char line[256];
    (void)snprintf(line, sizeof(line), "case       %s\n", name);
    const char *from = strstr(golden, line);
    const char *to = from ? strstr(from, "\n\n") : NULL;
    if (to)
        str_addf(out, "%.*s\n", (int)(to - from), from);
}

/* Lines begin with a word in a column of its own: by that they are paired. */
static bool begin_alike(const char *a, const char *b)
{
    enum { WORD_COLUMN = 11 };
    return strncmp(a, b, WORD_COLUMN) == 0;
}

static const char *next_line(const char *line)
{
    const char *end = strchrnul(line, '\n');
    return end + (*end == '\n');
}

/* Has the text a line that begins like this one? */
static bool has_alike(const char *text, const char *line)
{
    while (*text && !begin_alike(text, line))
        text = next_line(text);
    return *text != 0;
}

static void show_line(const char *word, const char *line)
{
    print_message("    %-3s  %.*s\n", word, (int)strcspn(line, "\n"), line);
}

/* Prints the lines that differ, before and after; how many there are. */
static int show_difference(const char *was, const char *is)
{
    int n = 0;
    while (*was || *is) {
        bool paired = *was && *is && begin_alike(was, is);
        bool added = !paired && (!*was || (*is && !has_alike(was, is)));
        bool differ = !paired || !plan_lines_agree(was, is);
        if (differ && !added)
            show_line("was", was);
        if (differ && (paired || added))
            show_line("is", is);
        n += differ;
        was = added ? was : next_line(was);
        is = paired || added ? next_line(is) : is;
    }
    return n;
}

static bool is_as_before(const struct plan_case *c, const char *golden)
{
    struct str want = {0}, got = {0};
    find_case(golden, c->name, &want);
    enum status status = plan_record(c, &got);
    if (status != OK)
        str_addf(&got, "failed     %s\n", status_message());
    int n = show_difference(str_text(&want), str_text(&got));
    if (n > 0)
        print_message("  %s: %d lines of the plan are others\n", c->name, n);
    str_release(&want);
    str_release(&got);
    return n == 0;
}

static void compare(const struct plan_case *cases, size_t n)
{
    char *golden = NULL;
    size_t n_bytes;
    int n_other = 0;
    assert_int_equal(file_read(GOLDEN, &golden, &n_bytes), OK);
    for (size_t i = 0; i < n; i++)
        n_other += !is_as_before(&cases[i], golden);
    mem_free(golden);
    if (n_other > 0)
        fail_msg("%d plans are others than before; where that is meant: tools/make_golden_plans.sh",
                 n_other);
}

#define COMPARE(cases) compare(cases, ARRAY_LEN(cases))

static void gpt2_is_planned_as_before(void **state)
{
    (void)state;
    COMPARE(gpt2_cases);
}

/* ---- writing them anew ----------------------------------------------------------------------- */

static int write_golden(const char *path)
{
    struct str out = {0};
    enum status status = OK;
    for (size_t f = 0; f < ARRAY_LEN(families) && status == OK; f++) {
        for (size_t i = 0; i < families[f].n && status == OK; i++) {
            status = plan_record(&families[f].cases[i], &out);
            str_add(&out, "\n");
        }
    }
    if (status == OK)
        status = file_write_atomic(path, str_text(&out), out.n);
    if (status != OK)
        (void)fprintf(stderr, "%s\n", status_message());
    str_release(&out);
    return status != OK;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_is_planned_as_before),
    };
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
