#include "train/reference.h"

#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "io/file_hash.h"
#include "io/weights.h"

/* One of the run's datasets and its numbers. */
struct numbers {
    struct session *s;
    bool eval;
    const struct dataset *data;
    struct batch batch; /* in the ring */
    float *values;
    int64_t n, n_each; /* in all, of a sample */
    uint64_t key;
    struct str path;
};

/* The beginning of a file; the numbers follow. */
struct header {
    char magic[8];
    uint64_t key;
    int64_t n;
};
static const char magic[8] = "SNUGREF1";

/* ---- the key --------------------------------------------------------------------------------- */

static void add_item(const struct batch *b, int i, uint64_t *hash)
{
    const struct tensor *t = &b->items[i].tensor;
    size_t n_bytes = (size_t)(tensor_bytes(t) / batch_rows(b));
    *hash = XXH3_64bits_withSeed(batch_row(b, i, 0), n_bytes, *hash);
}

/* Of what the program reads of each sample. */
static enum status hash_samples(struct numbers *x, uint64_t *hash)
{
    const struct feed *f = &x->s->reference_feed;
    for (int64_t i = 0; i < x->data->n_samples; i++) {
        TRY(x->data->read(x->data->user, i, &x->batch, 0));
        for (int k = 0; k < x->batch.n_items; k++) {
            if (f->inputs[0][k])
                add_item(&x->batch, k, hash);
        }
    }
    return OK;
}

static enum status make_key(struct numbers *x)
{
    const struct engine *e = &x->s->engine;
    const struct precision *p = &e->settings.numerics.precision;
    char weights[HASH_TEXT] = "from the seed";
    uint64_t hash = e->settings.seed;
    if (e->model_folder)
        TRY(weights_identity(e->model_folder, weights));
    hash = XXH3_64bits_withSeed(weights, sizeof(weights), hash);
    hash = XXH3_64bits_withSeed(&p->weights, sizeof(p->weights), hash);
    TRY(hash_samples(x, &hash));
    x->key = hash;
    return OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void add_path(const struct session *s, bool eval, struct str *out)
{
    str_addf(out, "%s/reference-%s", s->config->output_dir, eval ? "eval" : "train");
}

/* *found: they are there, and of this run. */
static enum status read_kept(struct numbers *x, const char *path, bool *found)
{
    struct file_in f;
    struct header h;
    size_t n_bytes = (size_t)x->n * sizeof(*x->values);
    *found = false;
    if (!file_is_regular(path))
        return OK;
    TRY(file_in_open(&f, path));
    enum status status = OK;
    if (f.n_bytes == (int64_t)(sizeof(h) + n_bytes)) {
        status = file_in_read(&f, 0, &h, sizeof(h));
        *found = status == OK && memcmp(h.magic, magic, sizeof(magic)) == 0 && h.key == x->key &&
                 h.n == x->n;
        if (*found)
            status = file_in_read(&f, sizeof(h), x->values, n_bytes);
    }
    file_in_close(&f);
    return status;
}

static enum status keep(const struct numbers *x)
{
    struct header h = {.key = x->key, .n = x->n};
    struct str bytes = {0};
    memcpy(h.magic, magic, sizeof(magic));
    str_add_n(&bytes, (const char *)&h, sizeof(h));
    str_add_n(&bytes, (const char *)x->values, (size_t)x->n * sizeof(*x->values));
    enum status status = str_status(&bytes);
    if (status == OK)
        status = file_write_atomic(x->path.text, bytes.text, bytes.n);
    str_release(&bytes);
    return status;
}

/* ---- computing them -------------------------------------------------------------------------- */

static enum status run_batch(struct numbers *x, int64_t first)
{
    struct session *s = x->s;
    const struct dataset *d = x->data;
    int64_t n_rows = batch_rows(&x->batch), n = MIN(n_rows, d->n_samples - first);
    for (int64_t row = 0; row < n_rows; row++) {
        if (row < n)
            TRY(d->read(d->user, first + row, &x->batch, row));
        else
            d->blank(d->user, &x->batch, row);
    }
    feed_copy(&s->reference_feed, &x->batch, 0);
    TRY(engine_run(&s->engine, s->reference, "forward"));
    memcpy(x->values + first * x->n_each, engine_output(&s->engine, s->reference, REFERENCE_OUTPUT),
           (size_t)(n * x->n_each) * sizeof(*x->values));
    return OK;
}

static enum status compute(struct numbers *x)
{
    double began = now_s();
    for (int64_t i = 0; i < x->data->n_samples; i += batch_rows(&x->batch))
        TRY(run_batch(x, i));
    log_info("%s: the reference's log-probabilities of %lld %s computed in %.1f s",
             x->eval ? "evaluation" : "training", (long long)x->data->n_samples, x->data->noun,
             now_s() - began);
    return OK;
}

/* Whether the network that the run began with is still there beneath what was trained. */
static bool has_base(const struct engine *e)
{
    for (int i = 0; i < e->n_params; i++) {
        const struct model_param *p = &e->params[i];
        if (!p->frozen && !p->adapter && !p->buffer)
            return false;
    }
    return true;
}

/* What is evaluated may be what was trained on, and is kept under that name. */
static enum status find_kept(struct numbers *x, bool *found)
{
    struct str path = {0};
    enum status status = read_kept(x, x->path.text, found);
    if (status != OK || *found)
        return status;
    add_path(x->s, !x->eval, &path);
    status = str_status(&path);
    if (status == OK)
        status = read_kept(x, path.text, found);
    str_release(&path);
    return status;
}

static enum status fill(struct numbers *x, bool untrained)
{
    bool found;
    TRY(make_key(x));
    TRY(find_kept(x, &found));
    if (found)
        return OK;
    if (!untrained && !has_base(&x->s->engine))
        return FAIL(ERR_CHECKPOINT,
                    "%s is missing, or of other data: it holds what the model said of the answers "
                    "before it was trained, and that model is no more. Put the file back, or start "
                    "a new run from these weights",
                    x->path.text);
    TRY(compute(x));
    return x->s->train ? keep(x) : OK;
}

static enum status fill_dataset(struct session *s, bool eval, bool untrained)
{
    bool in_eval_ring = !s->train;
    struct numbers x = {.s = s,
                        .eval = eval,
                        .data = loader_dataset(eval ? s->eval_loader : s->loader),
                        .batch = session_loader_options(s, in_eval_ring).batch};
    x.values = s->engine.task.def->data->reference(s->data, eval, &x.n);
    x.n_each = x.n / x.data->n_samples;
    batch_place(&x.batch, session_ring(s, in_eval_ring));
    add_path(s, eval, &x.path);
    enum status status = str_status(&x.path);
    if (status == OK)
        status = fill(&x, untrained);
    str_release(&x.path);
    return status;
}

enum status reference_fill(struct session *s, bool untrained)
{
    if (!s->reference)
        return OK;
    if (s->loader)
        TRY(fill_dataset(s, false, untrained));
    return s->eval_loader ? fill_dataset(s, true, untrained) : OK;
}
