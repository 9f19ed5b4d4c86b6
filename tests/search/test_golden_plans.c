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
#include <time.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sanitizer.h"
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
#define QWEN  "configs/qwen2.5-7b.yaml"
#define MOE   "configs/qlora-moe-24gb.yaml"
#define QLORA "configs/qlora-8b-8gb.yaml"
#define CNN   "configs/cnn.yaml"
#define WIDE  "configs/wide_autoencoder.yaml"
#define SPLIT "configs/branches.yaml"
#define THREE "configs/tasks.yml"

#define TIED   GPT2, "bf16=true host_memory=8GiB "
#define UNTIED LLAMA, "bf16=true max_seq_length=1024 host_memory=16GiB "
#define TWO    "model.num_hidden_layers=2 "
#define FOUR   "model.num_hidden_layers=4 "
#define COARSE "master_dtype=bf16 gradient_dtype=bf16 optim=adamw_8bit "
#define DISK   "offload_folder=@ "
#define NARROW \
    "model.width_divisor=16 model.n_voxels=8000 model.frame_height=6 model.frame_width=10 "

/* Embedding and head are one matrix. */
static const struct plan_case tied[] = {
    {"tied, roomy", "h200", TIED "model.n_layer=3 device_memory=8GiB", PLAN_WHAT_IF},
    {"tied, f32", "rtx3060", TIED "model.n_layer=3 bf16=false device_memory=1400MiB",
     PLAN_TRAINING},
    {"tied, clipped", "rtx3060", TIED "model.n_layer=5 device_memory=1GiB", PLAN_TRAINING},
    {"tied, unclipped", "rtx3060", TIED "model.n_layer=2 device_memory=900MiB max_grad_norm=0",
     PLAN_TRAINING},
    {"tied, fp16", "t4", TIED "model.n_layer=3 device_memory=1GiB", PLAN_TRAINING},
    {"tied, the least", "h200", TIED "model.n_layer=2 device_memory=800MiB", PLAN_TRAINING},
    {"tied, one block and what if", "rtx4090", TIED "model.n_layer=1 device_memory=950MiB",
     PLAN_WHAT_IF},
    {"tied, refused", "rtx3060", TIED "model.n_layer=1 device_memory=600MiB", PLAN_TRAINING},
    {"tied, the host refused", "rtx3060",
     TIED COARSE "model.n_layer=1 device_memory=900MiB host_memory=120MiB offload_optimizer=true",
     PLAN_TRAINING},
    {"tied, held and refused", "rtx3060",
     TIED COARSE "model.n_layer=1 device_memory=660MiB offload_optimizer=false", PLAN_TRAINING},
    {"tied, evaluated", "l4",
     TIED "model.n_layer=3 device_memory=1GiB eval_strategy=steps eval_steps=5 val_set_size=64",
     PLAN_TRAINING},
    {"tied, as configured", "rtx3090",
     TIED "model.n_layer=3 device_memory=1500MiB activation_offloading=true offload_optimizer=true",
     PLAN_TRAINING},
    {"tied, in evaluation", "rtx3090", TIED "model.n_layer=8 device_memory=640MiB val_set_size=8",
     PLAN_EVALUATION},
    {"tied, checkpointed", "rtx3090",
     TIED "model.n_layer=3 device_memory=1GiB gradient_checkpointing=true", PLAN_TRAINING},
};

/* Gradients added up over micro-steps; masters; the ends are of their own. */
static const struct plan_case untied[] = {
    {"untied, roomy", "a100-80", UNTIED FOUR "device_memory=20GiB", PLAN_TRAINING},
    {"untied, accumulated", "rtx3090", UNTIED FOUR "device_memory=3GiB", PLAN_TRAINING},
    {"untied, groups of 3", "rtx3060",
     UNTIED TWO "device_memory=1500MiB gradient_accumulation_steps=3", PLAN_TRAINING},
    {"untied, parts recomputed", "rtx3090",
     UNTIED FOUR "device_memory=3GiB gradient_checkpointing=mlp gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"untied, groups of 6", "h200",
     UNTIED TWO "device_memory=1500MiB gradient_accumulation_steps=6", PLAN_TRAINING},
    {"untied, all moved", "rtx3090",
     UNTIED TWO "device_memory=2GiB activation_offloading=true micro_batch_group=1", PLAN_TRAINING},
    {"untied, single", "rtx4090",
     UNTIED FOUR "device_memory=1800MiB gradient_accumulation_steps=1 max_grad_norm=0",
     PLAN_TRAINING},
    {"untied, 8 bits", "rtx4090", UNTIED TWO COARSE "device_memory=1300MiB", PLAN_TRAINING},
    {"untied, second", "h200", UNTIED TWO "device_memory=2GiB plan_rank=2 micro_batch_group=1",
     PLAN_TRAINING},
    {"untied, little host memory", "rtx5090", UNTIED FOUR "device_memory=3GiB host_memory=3400MiB",
     PLAN_TRAINING},
    {"untied, batch left open", "rtx3090",
     UNTIED TWO "device_memory=3GiB per_device_train_batch_size=auto train_batch_size=4",
     PLAN_TRAINING},
};

static const struct plan_case disk[] = {
    {"disk, some states", "rtx3090",
     UNTIED FOUR DISK "device_memory=2GiB host_memory=3GiB gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"disk, with room for some alone", "rtx3090",
     UNTIED FOUR DISK "device_memory=2GiB host_memory=3GiB disk_memory=2GiB "
                      "gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"disk, activations", "rtx3090",
     UNTIED TWO DISK "device_memory=2GiB activation_offloading=disk gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"disk, all", "rtx3090",
     UNTIED TWO DISK "device_memory=1500MiB host_memory=800MiB gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"disk, in groups", "rtx3090",
     UNTIED FOUR DISK "device_memory=1200MiB host_memory=1000MiB gradient_accumulation_steps=4 "
                      "per_device_train_batch_size=4",
     PLAN_TRAINING},
    {"disk, states and activations", "h200", QWEN,
     COARSE DISK "bf16=true per_device_train_batch_size=32 gradient_accumulation_steps=1 "
                 "max_grad_norm=0 device_memory=13.3GiB host_memory=24GiB",
     PLAN_TRAINING},
    {"disk, four micro-batches and a host with gaps", "h200", QWEN,
     FOUR COARSE DISK "bf16=true per_device_train_batch_size=32 gradient_accumulation_steps=4 "
                      "max_grad_norm=0 device_memory=9GiB host_memory=5GiB",
     PLAN_TRAINING},
    {"disk, a host that is better a little smaller", "rtx3090",
     UNTIED FOUR DISK "device_memory=1600MiB host_memory=3000MiB gradient_accumulation_steps=4 "
                      "per_device_train_batch_size=4",
     PLAN_TRAINING},
    {"disk, held and refused", "rtx3060",
     TIED COARSE DISK "model.n_layer=1 device_memory=500MiB max_grad_norm=0 "
                      "offload_optimizer=false offload_param=false "
                      "activation_offloading=false gradient_checkpointing=false",
     PLAN_TRAINING},
    {"disk, held in evaluation", "rtx3090",
     UNTIED TWO DISK "device_memory=500MiB offload_param=false val_set_size=8", PLAN_EVALUATION},
    {"disk, configured", "h200", UNTIED FOUR DISK "device_memory=4GiB offload_optimizer=disk",
     PLAN_TRAINING},
};

/* Not a chain of blocks that are alike. */
static const struct plan_case networks[] = {
    {"convolutions", "rtx3060", CNN, "device_memory=340MiB host_memory=2GiB", PLAN_TRAINING},
    {"branches", "rtx3060", SPLIT,
     "device_memory=343MiB host_memory=2GiB model.inputs.image.shape.0=96", PLAN_TRAINING},
    {"three branches, roomy", "h200", THREE, "device_memory=40GiB host_memory=8GiB", PLAN_TRAINING},
    {"three branches, some kept", "h200", THREE, "device_memory=20GiB host_memory=8GiB",
     PLAN_TRAINING},
    {"three branches, disk and little host memory", "h200", THREE,
     DISK "device_memory=10GiB host_memory=3GiB", PLAN_TRAINING},
    {"wide, rows", "h200", WIDE, NARROW "device_memory=390MiB host_memory=2GiB", PLAN_TRAINING},
    {"wide, slices", "h200", WIDE,
     "model.width_divisor=16 device_memory=3GiB host_memory=8GiB per_device_train_batch_size=5",
     PLAN_TRAINING},
    {"wide, slices and states", "rtx3090", WIDE,
     "model.width_divisor=16 device_memory=2100MiB host_memory=8GiB per_device_train_batch_size=5",
     PLAN_TRAINING},
};

/* Weights that are frozen, in 4 bits; experts. */
static const struct plan_case adapted[] = {
    {"adapter", "rtx3060", QLORA,
     "model.num_hidden_layers=3 model.vocab_size=8192 device_memory=1GiB host_memory=4GiB "
     "gradient_accumulation_steps=1",
     PLAN_TRAINING},
    {"experts", "rtx4090", MOE, "model.num_hidden_layers=2 device_memory=2GiB host_memory=8GiB",
     PLAN_TRAINING},
};

static const struct family {
    const struct plan_case *cases;
    size_t n;
} families[] = {{tied, ARRAY_LEN(tied)},
                {untied, ARRAY_LEN(untied)},
                {disk, ARRAY_LEN(disk)},
                {networks, ARRAY_LEN(networks)},
                {adapted, ARRAY_LEN(adapted)}};

/* One that cannot be made is a record too. */
static enum status record(const struct plan_case *c, struct str *out)
{
    struct scratch scratch;
    scratch_init(&scratch);
    if (plan_record(c, scratch.folder, out) != OK)
        str_addf(out, "failed     %s\n", status_message());
    scratch_release(&scratch);
    return str_status(out);
}

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
    assert_int_equal(record(c, &got), OK);
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
    for (size_t i = 0; i < n;
         i += SNUG_ASAN ? 6 : 1) /* few: it is a question of plans, not of memory */
        n_other += !is_as_before(&cases[i], golden);
    mem_free(golden);
    if (n_other > 0)
        fail_msg("%d plans are others than before; where that is meant: tools/make_golden_plans.sh",
                 n_other);
}

static void tied_embeddings_are_planned_as_before(void **state)
{
    (void)state;
    compare(tied, ARRAY_LEN(tied));
}

static void accumulated_gradients_are_planned_as_before(void **state)
{
    (void)state;
    compare(untied, ARRAY_LEN(untied));
}

static void a_disk_is_planned_with_as_before(void **state)
{
    (void)state;
    compare(disk, ARRAY_LEN(disk));
}

static void other_networks_are_planned_as_before(void **state)
{
    (void)state;
    compare(networks, ARRAY_LEN(networks));
}

static void adapters_are_planned_as_before(void **state)
{
    (void)state;
    compare(adapted, ARRAY_LEN(adapted));
}

/* ---- writing them anew ----------------------------------------------------------------------- */

static int write_golden(const char *path)
{
    struct str out = {0};
    enum status status = OK;
    for (size_t f = 0; f < ARRAY_LEN(families) && status == OK; f++) {
        for (size_t i = 0; i < families[f].n && status == OK; i++) {
            clock_t began = clock();
            status = record(&families[f].cases[i], &out);
            print_message("%5.2f s  %s\n", (double)(clock() - began) / CLOCKS_PER_SEC,
                          families[f].cases[i].name);
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
        cmocka_unit_test(tied_embeddings_are_planned_as_before),
        cmocka_unit_test(accumulated_gradients_are_planned_as_before),
        cmocka_unit_test(a_disk_is_planned_with_as_before),
        cmocka_unit_test(other_networks_are_planned_as_before),
        cmocka_unit_test(adapters_are_planned_as_before),
    };
    log_set_level(LOG_ERROR);
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_golden(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
