/* What a refusal advises can be pasted: with each of its settings the same command has a plan, as
 * fast as was said, and refusals leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/process.h"

static struct scratch scratch;

enum { MOST_ADDED = 8, MOST_REMEDIES = 16 };

/* Most of it is weights and states; a card, whose times are the same everywhere. */
static void plan(struct process *p, char *const added[MOST_ADDED], int n_added)
{
    const char *args[MAX_ARGS] = {"plan",
                                  "configs/demo.yaml",
                                  "--gpu",
                                  "t4",
                                  "--json",
                                  "model.hidden_size=1024",
                                  "model.intermediate_size=3072",
                                  "device_memory=680MiB",
                                  "host_memory=200MiB"};
    const struct process_options o = {.variable = "XDG_CACHE_HOME", .setting = scratch.folder};
    char output[SCRATCH_PATH + 32];
    int n = 9;
    (void)snprintf(output, sizeof(output), "output_dir=%s/runs/a", scratch.folder);
    args[n++] = output;
    for (int i = 0; i < n_added; i++)
        args[n++] = added[i];
    process_run(p, &scratch, &o, args);
}

struct remedy {
    char text[512];
    long rate; /* tokens per second; 0: that was not said */
};

/* "  SETTINGS   (BYTES, [RATE tokens/s, ]WORDS)", line by line. */
static int read_remedies(char *err, struct remedy out[MOST_REMEDIES])
{
    int n = 0;
    char *rest = NULL;
    for (char *line = strtok_r(err, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *end = strstr(line, "   (");
        if (strncmp(line, "  ", 2) != 0 || !end || !strchr(line, '='))
            continue;
        assert_true(n < MOST_REMEDIES);
        struct remedy *r = &out[n++];
        (void)snprintf(r->text, sizeof(r->text), "%.*s", (int)(end - line) - 2, line + 2);
        r->rate = 0;
        char *rate = strstr(end, " tokens/s");
        while (rate && rate[-1] != ' ')
            rate--;
        for (; rate && *rate != ' '; rate++)
            r->rate = *rate == ',' ? r->rate : 10 * r->rate + (*rate - '0');
    }
    return n;
}

static int split(char *text, char *out[MOST_ADDED])
{
    int n = 0;
    char *rest = NULL;
    for (char *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
        assert_true(n < MOST_ADDED);
        out[n++] = at;
    }
    return n;
}

/* It fits, as fast as that, but for what a process holds beside its arenas: that differs by pages
 * from one to the next, and is of the host's budget. */
static void expect_plan(struct remedy *r)
{
    struct process p;
    char *added[MOST_ADDED], text[sizeof(r->text)];
    memcpy(text, r->text, sizeof(text));
    plan(&p, added, split(text, added));
    if (p.exit_code != 0)
        fail_msg("%s: %s", r->text, p.err);
    json_t *j = expect_json(&p);
    long rate = (long)json_number_at(j, "predicted.tokens_per_s");
    if (r->rate > 0 && labs(rate - r->rate) > r->rate / 20)
        fail_msg("%s: %ld tokens/s, and %ld were advised", r->text, rate, r->rate);
    json_decref(j);
    process_release(&p);
}

static bool is_advised(const struct remedy *all, int n, const char *setting)
{
    for (int i = 0; i < n; i++) {
        if (strstr(all[i].text, setting))
            return true;
    }
    return false;
}

static void what_is_advised_can_be_pasted(void **state)
{
    static const char *const kinds[] = {
        "device_memory=", "host_memory=", "offload_folder=", "optim=", "adapter="};
    struct remedy all[MOST_REMEDIES];
    struct process p;
    char folder[SCRATCH_PATH];
    int n_priced = 0;
    (void)state;
    plan(&p, NULL, 0);
    expect_exit(&p, 3);
    int n = read_remedies(p.err, all);
    process_release(&p);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (!is_advised(all, n, kinds[i]))
            fail_msg("%s is not advised", kinds[i]);
    }
    assert_false(file_exists(scratch_path(&scratch, "runs", folder)));
    for (int i = 0; i < n; i++) {
        expect_plan(&all[i]);
        n_priced += all[i].rate > 0;
    }
    assert_true(n_priced >= 2);
}

/* Batch norm takes its statistics from one. */
static void smaller_micro_batches_are_not_always_the_same_sums(void **state)
{
    (void)state;
    struct process p;
    PROCESS_RUN(&p, &scratch, "plan", "configs/cnn.yaml", "device_memory=20MiB");
    expect_exit(&p, 3);
    char *line = strstr(p.err, "gradient_accumulation_steps=");
    assert_non_null(line);
    line[strcspn(line, "\n")] = '\0';
    assert_non_null(strstr(line, "other numerics"));
    process_release(&p);
}

static int open_scratch(void **state)
{
    (void)state;
    scratch_init(&scratch);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_release(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_advised_can_be_pasted),
        cmocka_unit_test(smaller_micro_batches_are_not_always_the_same_sums),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
