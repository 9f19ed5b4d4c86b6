#include "data/examples.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "data/packs.h"
#include "data/permutation.h"
#include "data/windows.h"

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
    int32_t *scratch;   /* [2, seq_len]: an example and its labels */
    struct packs packs; /* n 0: each has a row to itself */
    int64_t n_tokens;   /* of packed ones */
    int64_t n_each;     /* examples of a sample: 2 of a pair */
    float *reference;   /* [n_samples, 2], of pairs */
};

/* How many are held out of the first n of n_total: shares of sets add up to that of all. */
static int64_t n_held(const struct examples_options *o, int64_t n, int64_t n_total)
{
    double wanted = o->held_out < 1 ? ceil(o->held_out * (double)n_total) : o->held_out;
    return (int64_t)floor(MIN(wanted, (double)n_total) * ((double)n / (double)n_total) + 1e-9);
}

static int64_t n_samples_of(const struct examples_options *o, size_t i)
{
    return source_n_examples(o->sets[i].source) / (o->pairs ? 2 : 1);
}

static void fill_part(struct part *p, const struct examples_options *o, size_t i, int64_t n_before,
                      int64_t n_total)
{
    const struct example_set *set = &o->sets[i];
    int64_t n = n_samples_of(o, i);
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
        n_total += n_samples_of(o, i);
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

/* Example i of all is which of which source: those of a sample lie one behind the other. */
static enum status find(const struct examples *x, int64_t i_example, const struct part **part,
                        int64_t *first, int64_t *n)
{
    int64_t i = i_example / x->n_each;
    size_t k = 0;
    while (k + 1 < x->n_parts && x->parts[k + 1].begin <= i)
        k++;
    const struct part *p = *part = &x->parts[k];
    uint64_t place = (uint64_t)(p->first + (i - p->begin) % p->n_own);
    int64_t example = (int64_t)permute(x->seed, p->stream, (uint64_t)p->n_all, place);
    TRY(source_example(p->source, example * x->n_each + i_example % x->n_each, first, n));
    *n = MIN(*n, x->seq_len);
    return OK;
}

static enum status make_packs(struct examples *x)
{
    int32_t *lengths;
    enum status status;
    TRY(mem_try_array(&lengths, (size_t)x->n_samples, sizeof(*lengths)));
    for (int64_t i = 0; i < x->n_samples; i++) {
        const struct part *part;
        int64_t first, n;
        TRY_GOTO(find(x, i, &part, &first, &n), out);
        lengths[i] = (int32_t)MAX(n, (int64_t)1);
        x->n_tokens += n;
    }
    status = packs_make(&x->packs, lengths, x->n_samples, x->seq_len);
out:
    mem_free(lengths);
    return status;
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
    x->n_each = o->pairs ? 2 : 1;
    TRY_GOTO(fill_parts(x, o), out);
    if (o->pairs)
        TRY_GOTO(mem_try_array(&x->reference, (size_t)x->n_samples * 2, sizeof(*x->reference)),
                 out);
    if (o->packed)
        TRY_GOTO(make_packs(x), out);
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
    packs_release(&x->packs);
    mem_free(x->parts);
    mem_free(x->scratch);
    mem_free(x->reference);
    mem_free(x);
}

/* What lies in a row from token n on does not count; each is a sample by itself. */
static void blank_from(const struct examples *x, struct batch *b, int64_t row, int64_t n)
{
    int32_t *tokens = batch_row(b, ITEM_TOKENS, row), *targets = batch_row(b, ITEM_TARGETS, row);
    for (int64_t k = n; k < x->seq_len; k++) {
        tokens[k] = x->padding;
        targets[k] = LABEL_IGNORED;
    }
    if (x->packs.n > 0)
        memset((int32_t *)batch_row(b, ITEM_POSITIONS, row) + n, 0,
               (size_t)(x->seq_len - n) * sizeof(int32_t));
}

/* Sample i from token `at` of the row on; *n is its length. */
static enum status read_at(const struct examples *x, int64_t i, struct batch *b, int64_t row,
                           int64_t at, int64_t *n)
{
    const struct part *part;
    int64_t first;
    int32_t *targets = (int32_t *)batch_row(b, ITEM_TARGETS, row) + at;
    int32_t *labels = x->scratch + x->seq_len;
    TRY(find(x, i, &part, &first, n));
    TRY(source_read(part->source, first, *n, x->scratch, labels));
    memcpy((int32_t *)batch_row(b, ITEM_TOKENS, row) + at, x->scratch,
           (size_t)*n * sizeof(*x->scratch));
    for (int64_t k = 0; k < *n; k++) {
        targets[k] = k + 1 < *n ? labels[k + 1] : LABEL_IGNORED;
        b->n_valid += targets[k] != LABEL_IGNORED;
    }
    return OK;
}

static enum status read_example(void *user, int64_t i, struct batch *b, int64_t row)
{
    int64_t n;
    TRY(read_at(user, i, b, row, 0, &n));
    blank_from(user, b, row, n);
    return OK;
}

static enum status read_pack(void *user, int64_t i, struct batch *b, int64_t row)
{
    const struct examples *x = user;
    int32_t *positions = batch_row(b, ITEM_POSITIONS, row);
    int64_t at = 0, n;
    for (int64_t k = x->packs.begin[i]; k < x->packs.begin[i + 1]; k++, at += n) {
        TRY(read_at(x, x->packs.members[k], b, row, at, &n));
        for (int64_t p = 0; p < n; p++)
            positions[at + p] = (int32_t)p;
    }
    blank_from(x, b, row, at);
    return OK;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

void examples_describe_pairs(struct batch *b, int64_t n_rows, int64_t seq_len)
{
    batch_add(b, "tokens", DTYPE_I32, shape_of(3, n_rows, INT64_C(2), seq_len));
    batch_add(b, "targets", DTYPE_I32, shape_of(3, n_rows, INT64_C(2), seq_len));
    batch_add(b, "reference", DTYPE_F32, shape_of(2, n_rows, INT64_C(2)));
    batch_add(b, "is_pair", DTYPE_F32, shape_of(1, n_rows));
}

static void pad_answer(const struct examples *x, struct batch *b, int64_t row, int64_t from,
                       int64_t end)
{
    int32_t *tokens = batch_row(b, ITEM_TOKENS, row), *targets = batch_row(b, ITEM_TARGETS, row);
    for (int64_t k = from; k < end; k++) {
        tokens[k] = x->padding;
        targets[k] = LABEL_IGNORED;
    }
}

/* A pair is what counts, however long its answers are. */
static enum status read_pair(void *user, int64_t i, struct batch *b, int64_t row)
{
    const struct examples *x = user;
    int64_t n_valid = b->n_valid, n;
    for (int64_t k = 0; k < 2; k++) {
        TRY(read_at(x, 2 * i + k, b, row, k * x->seq_len, &n));
        pad_answer(x, b, row, k * x->seq_len + n, (k + 1) * x->seq_len);
    }
    memcpy(batch_row(b, ITEM_REFERENCE, row), x->reference + 2 * i, 2 * sizeof(*x->reference));
    *(float *)batch_row(b, ITEM_IS_PAIR, row) = 1;
    b->n_valid = n_valid + 1;
    return OK;
}

static void blank_pair(void *user, struct batch *b, int64_t row)
{
    const struct examples *x = user;
    pad_answer(x, b, row, 0, 2 * x->seq_len);
    memset(batch_row(b, ITEM_REFERENCE, row), 0, 2 * sizeof(*x->reference));
    *(float *)batch_row(b, ITEM_IS_PAIR, row) = 0;
}

float *examples_reference(struct examples *x, int64_t *n)
{
    *n = x->reference ? 2 * x->n_samples : 0;
    return x->reference;
}

/* ---- lengths --------------------------------------------------------------------------------- */

static enum status length_of(void *user, int64_t i, int64_t *n)
{
    const struct examples *x = user;
    *n = 1;
    for (int64_t k = 0; k < x->n_each; k++) {
        const struct part *part;
        int64_t first, one;
        TRY(find(x, i * x->n_each + k, &part, &first, &one));
        *n = MAX(*n, one);
    }
    return OK;
}

/* ---- as a dataset ---------------------------------------------------------------------------- */

static void blank_example(void *user, struct batch *b, int64_t row)
{
    blank_from(user, b, row, 0);
}

struct dataset examples_dataset(struct examples *x)
{
    bool packed = x->packs.n > 0, pairs = x->n_each == 2;
    return (struct dataset){
        .user = x,
        .n_samples = packed ? x->packs.n : x->n_samples,
        .noun = packed  ? "rows"
                : pairs ? "pairs"
                        : "examples",
        .size = x->seq_len,
        .size_noun = "tokens",
        .advice = packed ? "packing: false" : NULL,
        .is_split = true,
        .read = packed  ? read_pack
                : pairs ? read_pair
                        : read_example,
        .length = packed ? NULL : length_of,
        .blank = pairs ? blank_pair : blank_example,
    };
}

struct packing_counts examples_packing(const struct examples *x)
{
    return (struct packing_counts){x->n_samples, x->packs.n, x->n_tokens};
}
