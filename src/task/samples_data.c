/* samples_data.c: where samples come from: made up, for now, or tensors out of files. */
#include <string.h>

#include "base/alloc.h"
#include "data/samples.h"
#include "io/file_hash.h"
#include "task/samples.h"

/* Made-up data without an end: so much that no run comes round to it again. */
#define ENDLESS_SAMPLES ((int64_t)1 << 31)

struct samples_data {
    struct task_data_options options;
    const struct sample_facts *facts;
    struct synthetic_samples synthetic[2]; /* to train on, to evaluate on */
    struct samples *samples[2];
};

static enum status open_data(void **data, const struct task_data_options *o)
{
    struct samples_data *x;
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
    for (int i = 0; i < 2; i++)
        samples_free(x->samples[i]);
    mem_free(x);
}

static int64_t read_bytes(void *data)
{
    (void)data;
    return 0;
}

static enum status read_data(void *data, int64_t spare_bytes)
{
    (void)data;
    (void)spare_bytes;
    return OK;
}

static const struct config_datasets *datasets_of(const struct samples_data *x, bool eval)
{
    const struct config *cfg = x->options.config;
    return eval && cfg->eval_datasets.n ? &cfg->eval_datasets : &cfg->datasets;
}

static enum status dataset(void *data, bool eval, struct dataset *out)
{
    struct samples_data *x = data;
    const struct config_dataset *d = &datasets_of(x, eval)->items[0];
    x->synthetic[eval] = (struct synthetic_samples){.facts = x->facts,
                                                    .seed = (uint64_t)x->options.config->data_seed,
                                                    .is_noise = d->type == CONFIG_DATASET_RANDOM};
    struct sample_source source =
        synthetic_samples(&x->synthetic[eval], d->n_tokens > 0 ? d->n_tokens : ENDLESS_SAMPLES);
    TRY(samples_open(&x->samples[eval], x->facts, &source));
    *out = samples_dataset(x->samples[eval]);
    return OK;
}

static enum status identity(const void *data, json_t **out)
{
    const struct samples_data *x = data;
    const struct config_dataset *d = &datasets_of(x, false)->items[0];
    *out = json_pack("{s:I}", "samples",
                     (json_int_t)(d->n_tokens > 0 ? d->n_tokens : ENDLESS_SAMPLES));
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
