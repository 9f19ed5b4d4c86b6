#include "data/examples.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "data/permutation.h"

enum { ITEM_TOKENS, ITEM_TARGETS };

/* A set in the order that the seed gives it: those to train on first, those held out behind. */
struct part {
    const struct source *source;
    uint64_t stream;             /* of the order */
    int64_t n_all, first, n_own; /* places of those that are used */
    int64_t begin, n_seen;       /* samples that they are */
};

struct examples {
    struct part *parts;
    size_t n_parts;
    int64_t n_samples, seq_len;
    int32_t padding;
    uint64_t seed;
    int32_t *scratch; /* [2, seq_len]: an example and its labels */
};

/* How many are held out of the first n of n_total: shares of sets add up to that of all. */
static int64_t n_held(const struct examples_options *o, int64_t n, int64_t n_total)
{
    double wanted = o->held_out < 1 ? ceil(o->held_out * (double)n_total) : o->held_out;
    return (int64_t)floor(MIN(wanted, (double)n_total) * ((double)n / (double)n_total) + 1e-9);
}

static void fill_part(struct part *p, const struct examples_options *o, size_t i, int64_t n_before,
                      int64_t n_total)
{
    const struct example_set *set = &o->sets[i];
    int64_t n = source_n_examples(set->source);
    int64_t held = n_held(o, n_before + n, n_total) - n_held(o, n_before, n_total);
    *p = (struct part){.source = set->source, .stream = i, .n_all = n};
    p->first = o->wants_held ? n - held : 0;
    p->n_own = o->wants_held ? held : n - held;
    p->n_seen = o->wants_held ? held : (int64_t)llround(set->weight * (double)p->n_own);
}

static enum status fill_parts(struct examples *x, const struct examples_options *o)
{
    int64_t n_total = 0, n_before = 0;
    for (size_t i = 0; i < o->n_sets; i++)
        n_total += source_n_examples(o->sets[i].source);
    for (size_t i = 0; i < o->n_sets; i++) {
        struct part *p = &x->parts[i];
        fill_part(p, o, i, n_before, n_total);
        n_before += p->n_all;
        p->begin = x->n_samples;
        if (p->n_seen > ((int64_t)1 << 60) - x->n_samples)
            return FAIL(ERR_CONFIG, "a weight of %g makes too many examples", o->sets[i].weight);
        x->n_samples += p->n_seen;
    }
    if (x->n_samples == 0)
        return FAIL(ERR_DATA, "of %" PRId64 " examples none is left to %s: make val_set_size %s",
                    n_total, o->wants_held ? "evaluate on" : "train on",
                    o->wants_held ? "larger" : "smaller, or a weight larger");
    return OK;
}

enum status examples_open(struct examples **out, const struct examples_options *o)
{
    struct examples *x;
    enum status status;
    *out = NULL;
    TRY(mem_try_array(&x, 1, sizeof(*x)));
    x->n_parts = o->n_sets;
    x->seq_len = o->seq_len;
    x->padding = o->padding;
    x->seed = o->seed;
    TRY_GOTO(mem_try_array(&x->parts, o->n_sets, sizeof(*x->parts)), out);
    TRY_GOTO(mem_try_array(&x->scratch, 2 * (size_t)o->seq_len, sizeof(*x->scratch)), out);
    TRY_GOTO(fill_parts(x, o), out);
    *out = x;
out:
    if (status != OK)
        examples_free(x);
    return status;
}

void examples_free(struct examples *x)
{
    if (!x)
        return;
    mem_free(x->parts);
    mem_free(x->scratch);
    mem_free(x);
}

/* Sample i of all is which example of which source. */
static enum status find(const struct examples *x, int64_t i, const struct part **part,
                        int64_t *first, int64_t *n)
{
    size_t k = 0;
    while (k + 1 < x->n_parts && x->parts[k + 1].begin <= i)
        k++;
    const struct part *p = *part = &x->parts[k];
    uint64_t place = (uint64_t)(p->first + (i - p->begin) % p->n_own);
    int64_t example = (int64_t)permute(x->seed, p->stream, (uint64_t)p->n_all, place);
    return source_example(p->source, example, first, n);
}

static void blank_from(const struct examples *x, struct batch *b, int64_t row, int64_t n)
{
    int32_t *tokens = batch_row(b, ITEM_TOKENS, row), *targets = batch_row(b, ITEM_TARGETS, row);
    for (int64_t k = n; k < x->seq_len; k++)
        tokens[k] = x->padding;
    for (int64_t k = MAX(n - 1, (int64_t)0); k < x->seq_len; k++)
        targets[k] = LABEL_IGNORED;
}

static enum status read_example(void *user, int64_t i, struct batch *b, int64_t row)
{
    const struct examples *x = user;
    const struct part *part;
    int64_t first, n;
    int32_t *tokens = batch_row(b, ITEM_TOKENS, row), *targets = batch_row(b, ITEM_TARGETS, row);
    int32_t *labels = x->scratch + x->seq_len;
    TRY(find(x, i, &part, &first, &n));
    n = MIN(n, x->seq_len);
    TRY(source_read(part->source, first, n, x->scratch, labels));
    memcpy(tokens, x->scratch, (size_t)n * sizeof(*tokens));
    for (int64_t k = 0; k + 1 < n; k++) {
        targets[k] = labels[k + 1];
        b->n_valid += targets[k] != LABEL_IGNORED;
    }
    blank_from(x, b, row, n);
    return OK;
}

static void blank_example(void *user, struct batch *b, int64_t row)
{
    blank_from(user, b, row, 0);
}

struct dataset examples_dataset(struct examples *x)
{
    return (struct dataset){
        .user = x,
        .n_samples = x->n_samples,
        .noun = "examples",
        .size = x->seq_len,
        .size_noun = "tokens",
        .is_split = true,
        .read = read_example,
        .blank = blank_example,
    };
}
