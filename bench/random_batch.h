/* random_batch.h: a batch of random tokens for a training program, where no data is read. */
#ifndef SNUG_BENCH_RANDOM_BATCH_H
#define SNUG_BENCH_RANDOM_BATCH_H

#include "base/rng.h"
#include "train/session.h"

static inline void fill_random_batch(const struct session *s, const struct stage *train)
{
    const struct engine *e = &s->engine;
    int64_t n = s->config->per_device_train_batch_size * s->config->max_seq_length;
    int32_t *tokens = engine_input(e, train, "tokens");
    int32_t *targets = engine_input(e, train, "targets");
    struct rng r = {.key = 1};
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = (int32_t)rng_below(&r, (uint64_t)e->model->language.vocab_size);
        targets[i] = (int32_t)rng_below(&r, (uint64_t)e->model->language.vocab_size);
    }
    *(float *)engine_input(e, train, LOSS_SEED) = 1.0f / (float)n;
    *(float *)engine_input(e, train, "lr") = 1e-4f;
}

#endif
