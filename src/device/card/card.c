#include "device/card/card.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/machine.h"
#include "device/cuda/cuda_kernels.h"
#include "device/gpu.h"

/* ---- the table ------------------------------------------------------------------------------- */

static const struct card cards[] = {
#define CARD(name, title, capability, sm, mib, l2, half, tf32, f32, gb, generation, lanes) \
    {name, title, capability, sm, mib, l2, half, tf32, f32, gb, generation, lanes},
#include "device/card/cards.def"
#undef CARD
};

int card_count(void)
{
    return (int)ARRAY_LEN(cards);
}

const struct card *card_at(int i)
{
    return &cards[i];
}

void card_add_names(struct str *out)
{
    for (size_t i = 0; i < ARRAY_LEN(cards); i++)
        str_addf(out, "%s%s", i ? ", " : "", cards[i].name);
}

static enum status card_find(const char *name, const struct card **out)
{
    struct str names = {0};
    for (size_t i = 0; i < ARRAY_LEN(cards); i++) {
        *out = &cards[i];
        if (strcmp(cards[i].name, name) == 0)
            return OK;
    }
    card_add_names(&names);
    enum status status =
        FAIL(ERR_CONFIG, "there is no GPU '%s' to plan for; there are %s", name, str_text(&names));
    str_release(&names);
    return status;
}

/* ---- what the architectures have ------------------------------------------------------------- */

/* From the CUDA C++ Programming Guide's table of compute capabilities, in bytes of shared memory:
 * what a block may have (opted in), what a multiprocessor has; and its resident threads. */
static const struct architecture {
    int capability, block_kib, multiprocessor_kib, threads;
} architectures[] = {
    {70, 96, 96, 2048},  {75, 64, 64, 1024},   {80, 163, 164, 2048},  {86, 99, 100, 1536},
    {89, 99, 100, 1536}, {90, 227, 228, 2048}, {100, 227, 228, 2048}, {120, 99, 100, 1536},
};

static const struct architecture *architecture_of(const struct card *c)
{
    const struct architecture *a = architectures;
    while (a->capability != c->capability)
        a++;
    return a;
}

struct card_state {
    const struct card *card;
    struct gpu_model gpu;
};

static struct card_state *state_of(const struct device *d)
{
    return d->state;
}

static void fill_model(struct gpu_model *m, const struct card *c)
{
    const struct architecture *a = architecture_of(c);
    *m = (struct gpu_model){
        .major = c->capability / 10,
        .minor = c->capability % 10,
        .n_multiprocessors = c->n_multiprocessors,
        .shared_per_block_optin = a->block_kib << 10,
        .shared_per_multiprocessor = a->multiprocessor_kib << 10,
        .threads_per_multiprocessor = a->threads,
        .l2_bytes = (int64_t)(c->l2_mib * (1 << 20)),
        .memory_bytes = c->memory_mib << 20,
        .answers = &card_answers,
    };
}

/* ---- the device ------------------------------------------------------------------------------ */

static enum status not_here(const struct device *d)
{
    return FAIL(ERR_UNSUPPORTED, "%s is planned for, it is not here: nothing runs on it",
                d->description);
}

static enum status memory_alloc(struct device *d, enum tier t, int64_t n_bytes, void **out)
{
    (void)t;
    (void)n_bytes;
    *out = NULL;
    return not_here(d);
}

static void memory_free(struct device *d, enum tier t, void *p, int64_t n_bytes)
{
    (void)d;
    (void)t;
    (void)p;
    (void)n_bytes;
}

static enum status copy(struct device *d, enum queue q, struct place to, struct place from,
                        int64_t n_bytes)
{
    (void)q;
    (void)to;
    (void)from;
    (void)n_bytes;
    return not_here(d);
}

static void *queue(struct device *d, enum queue q)
{
    (void)d;
    (void)q;
    return NULL;
}

static enum status event(struct device *d, enum queue q, int event)
{
    (void)q;
    (void)event;
    return not_here(d);
}

static enum status capture_end(struct device *d, void **recording)
{
    if (recording)
        *recording = NULL;
    return not_here(d);
}

static enum status capture_begin(struct device *d)
{
    return not_here(d);
}

static enum status replay(struct device *d, void *recording)
{
    (void)recording;
    return not_here(d);
}

static void capture_free(struct device *d, void *recording)
{
    (void)d;
    (void)recording;
}

static double call_seconds(const struct device *d, const struct op_call *c)
{
    return card_call_seconds(d, state_of(d)->card, c);
}

static enum status tune(struct device *d, const struct device_tuning *t)
{
    const struct gpu_model *gpu = &state_of(d)->gpu;
    if (t->tf32 && gpu->major < 8)
        return FAIL(ERR_UNSUPPORTED,
                    "tf32 needs a GPU of compute capability 8.0 or newer, %s has %d.%d",
                    state_of(d)->card->title, gpu->major, gpu->minor);
    return OK;
}

static int64_t context_bytes(struct device *d)
{
    return card_context_bytes(&state_of(d)->gpu);
}

static int64_t recording_bytes(struct device *d, int64_t n_instrs)
{
    (void)d;
    return gpu_recording_bytes(n_instrs);
}

static enum status room(struct device *d, struct device_room *out)
{
    const struct card_state *s = state_of(d);
    *out =
        (struct device_room){.total_bytes = s->gpu.memory_bytes, .free_bytes = s->gpu.memory_bytes};
    (void)snprintf(out->whose, sizeof(out->whose), "the %s", s->card->title);
    return OK;
}

static int64_t used_bytes(struct device *d)
{
    (void)d;
    return 0;
}

static void close_card(struct device *d)
{
    mem_free(d->state);
}

static const struct device_ops card_ops = {
    .name = "cuda",
    .memory_is_apart = true,
    .kernels = cuda_kernels,
    .batch = cuda_batch,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .copy = copy,
    .queue = queue,
    .record = event,
    .wait = event,
    .sync = capture_begin,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .replay = replay,
    .capture_free = capture_free,
    .call_seconds = call_seconds,
    .tune = tune,
    .context_bytes = context_bytes,
    .recording_bytes = recording_bytes,
    .room = room,
    .used_bytes = used_bytes,
    .close = close_card,
};

enum status device_open_card(struct device *d, const char *name)
{
    const struct card *card;
    struct card_state *s;
    char memory[BYTES_TEXT];
    *d = (struct device){0};
    TRY(card_find(name, &card));
    TRY(mem_try_array(&s, 1, sizeof(*s)));
    s->card = card;
    fill_model(&s->gpu, card);
    d->ops = &card_ops;
    d->state = s;
    d->is_absent = true;
    d->env.n_threads = usable_processors();
    d->env.gpu = &s->gpu;
    d->lacks_bf16 = s->gpu.major < 8;
    d->cache_bytes = s->gpu.l2_bytes;
    card_rates(card, &d->rates);
    (void)snprintf(d->identity, sizeof(d->identity), "planned: %s", card->name);
    (void)snprintf(d->description, sizeof(d->description), "%s, %s, compute capability %d.%d",
                   card->title, format_bytes(memory, s->gpu.memory_bytes), s->gpu.major,
                   s->gpu.minor);
    return OK;
}
