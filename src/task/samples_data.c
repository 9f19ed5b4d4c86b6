/* samples_data.c: where samples come from: made up, or tensors out of files. */
#include <string.h>

#include "base/alloc.h"
#include "data/samples.h"
#include "io/file_hash.h"
#include "task/sample_files.h"
#include "task/samples.h"

/* Made-up data without an end: so much that no run comes round to it again. */
#define ENDLESS_SAMPLES ((int64_t)1 << 31)

/* What is trained on, or what is evaluated on. */
struct side {
    struct synthetic_samples synthetic;
    struct sample_files *files; /* NULL: made up */
    struct samples *samples;
};

struct samples_data {
    struct task_data_options options;
    const struct sample_facts *facts;
    struct side sides[2]; /* to train on, to evaluate on */
};

static const struct config_datasets *datasets_of(const struct samples_data *x, bool eval)
{
    const struct config *cfg = x->options.config;
    return eval && cfg->eval_datasets.n ? &cfg->eval_datasets : &cfg->datasets;
}

static bool is_made_up(const struct config_dataset *d)
{
    return d->type == CONFIG_DATASET_SYNTHETIC || d->type == CONFIG_DATASET_RANDOM;
}

static enum status check_types(const struct config_datasets *all)
{
    for (size_t i = 0; i < all->n; i++) {
        const struct config_dataset *d = &all->items[i];
        bool is_read = d->type == CONFIG_DATASET_AUTO || d->type == CONFIG_DATASET_JSONL;
        if (is_made_up(d) ? i > 0 || all->n > 1 : !is_read)
            return FAIL(ERR_CONFIG,
                        "%s: a network's samples are type: synthetic or random, alone, or files of "
                        "tensors or lists of them: path: data.safetensors, without a type",
                        d->where);
    }
    return OK;
}

static enum status open_data(void **data, const struct task_data_options *o)
{
    struct samples_data *x;
    TRY(check_types(&o->config->datasets));
    TRY(check_types(&o->config->eval_datasets));
    TRY(mem_try_array(&x, 1, sizeof(*x)));
    x->options = *o;
    x->facts = &o->task->model->samples;
    *data = x;
    return OK;
}

static void close_data(void *data)
{
    struct samples_data *x = data;
    if (!x)
        return;
    for (int i = 0; i < 2; i++) {
        samples_free(x->sides[i].samples);
        sample_files_close(x->sides[i].files);
    }
    mem_free(x);
}

/* Rows are read one by one, when they are wanted. */
static int64_t read_bytes(void *data)
{
    (void)data;
    return 0;
}

static enum status read_side(struct samples_data *x, bool eval)
{
    const struct config_datasets *all = datasets_of(x, eval);
    if (is_made_up(&all->items[0]))
        return OK;
    return sample_files_open(&x->sides[eval].files, all, x->facts,
                             x->options.config->skip_bad_samples);
}

static enum status read_data(void *data, int64_t spare_bytes)
{
    struct samples_data *x = data;
    (void)spare_bytes;
    TRY(read_side(x, false));
    return x->options.evaluate ? read_side(x, true) : OK;
}

static int64_t made_up_samples(const struct config_dataset *d)
{
    return d->n_tokens > 0 ? d->n_tokens : ENDLESS_SAMPLES;
}

static enum status dataset(void *data, bool eval, struct dataset *out)
{
    struct samples_data *x = data;
    struct side *side = &x->sides[eval];
    const struct config_dataset *d = &datasets_of(x, eval)->items[0];
    struct sample_source source;
    side->synthetic = (struct synthetic_samples){.facts = x->facts,
                                                 .seed = (uint64_t)x->options.config->data_seed,
                                                 .is_noise = d->type == CONFIG_DATASET_RANDOM};
    if (side->files)
        source = sample_files_source(side->files);
    else
        source = synthetic_samples(&side->synthetic, made_up_samples(d));
    TRY(samples_open(&side->samples, x->facts, &source));
    *out = samples_dataset(side->samples);
    return OK;
}

static enum status identity(const void *data, json_t **out)
{
    const struct samples_data *x = data;
    const struct sample_files *files = x->sides[0].files;
    const struct config_dataset *d = &datasets_of(x, false)->items[0];
    char digits[HASH_TEXT];
    uint64_t hash = files ? sample_files_hash(files) : (uint64_t)d->type;
    int64_t n = files ? sample_files_source(x->sides[0].files).n_samples : made_up_samples(d);
    *out = json_pack("{s:I, s:s}", "samples", (json_int_t)n, "hash", file_hash_text(digits, hash));
    return *out ? OK : FAIL(ERR_MEMORY, "out of memory for the run's settings");
}

const struct task_data_def samples_data = {
    .open = open_data,
    .close = close_data,
    .read_bytes = read_bytes,
    .read = read_data,
    .dataset = dataset,
    .identity = identity,
};
