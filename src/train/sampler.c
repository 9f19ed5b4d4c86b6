#include "train/sampler.h"

#include <math.h>

#include "base/half.h"

/* A token and its logit, then its probability. */
struct candidate {
    float score;
    int32_t id;
};

int64_t sampler_scratch_bytes(int64_t vocab_size)
{
    return vocab_size * (int64_t)sizeof(struct candidate);
}

static enum status read_logits(const struct tensor *logits, struct candidate *c, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x;
        if (logits->dtype == DTYPE_F32)
            x = ((const float *)logits->data)[i];
        else if (logits->dtype == DTYPE_BF16)
            x = bf16_to_f32(((const uint16_t *)logits->data)[i]);
        else
            x = f16_to_f32(((const uint16_t *)logits->data)[i]);
        if (isnan(x))
            return FAIL(ERR_NUMERIC, "the logits are not numbers: the weights are damaged or the "
                                     "training that made them had diverged");
        c[i] = (struct candidate){x, (int32_t)i};
    }
    return OK;
}

/* Likelier first; among equals the lower id. */
static int before(const struct candidate *a, const struct candidate *b)
{
    return a->score > b->score || (a->score == b->score && a->id < b->id);
}

static void sift_down(struct candidate *c, int64_t i, int64_t n)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n)
            return;
        if (child + 1 < n && before(&c[child + 1], &c[child]))
            child++;
        if (before(&c[i], &c[child]))
            return;
        struct candidate t = c[i];
        c[i] = c[child];
        c[child] = t;
        i = child;
    }
}

/* Puts the `wanted` likeliest at the end of c, the likeliest last: a heap whose top is taken off
 * one at a time. */
static void take_top(struct candidate *c, int64_t n, int64_t wanted)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(c, i, n);
    for (int64_t taken = 0; taken < wanted; taken++) {
        int64_t last = n - 1 - taken;
        struct candidate t = c[0];
        c[0] = c[last];
        c[last] = t;
        sift_down(c, 0, last);
    }
}

static int32_t likeliest(const struct candidate *c, int64_t n)
{
    const struct candidate *best = c;
    for (int64_t i = 1; i < n; i++) {
        if (before(&c[i], best))
            best = &c[i];
    }
    return best->id;
}

/* Scores become weights exp((score - max) / temperature); their sum. */
static double exponentiate(struct candidate *c, int64_t n, double temperature)
{
    float top = -HUGE_VALF;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = c[i].score > top ? c[i].score : top;
    for (int64_t i = 0; i < n; i++) {
        c[i].score = (float)exp(((double)c[i].score - (double)top) / temperature);
        sum += (double)c[i].score;
    }
    return sum;
}

static int32_t draw(struct rng *rng, const struct candidate *c, int64_t n, double sum)
{
    double left = rng_double(rng) * sum;
    for (int64_t i = n - 1; i > 0; i--) {
        left -= (double)c[i].score;
        if (left < 0)
            return c[i].id;
    }
    return c[0].id;
}

enum status sampler_draw(struct sampler *s, const struct tensor *logits, void *scratch,
                         int32_t *token)
{
    struct candidate *c = scratch;
    int64_t n = shape_elems(&logits->shape);
    TRY(read_logits(logits, c, n));
    if (s->temperature <= 0) {
        *token = likeliest(c, n);
        return OK;
    }
    int64_t kept = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    if (kept < n || s->top_p < 1.0)
        take_top(c, n, kept);
    struct candidate *from = c + (n - kept);
    double sum = exponentiate(from, kept, s->temperature);
    if (s->top_p < 1.0) {
        double reached = 0;
        int64_t n_nucleus = 0;
        while (n_nucleus < kept && reached < s->top_p * sum)
            reached += (double)from[kept - 1 - n_nucleus++].score;
        from += kept - n_nucleus;
        kept = n_nucleus;
        sum = reached;
    }
    *token = draw(&s->rng, from, kept, sum);
    return OK;
}
