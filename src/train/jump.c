#include "train/jump.h"

#include <math.h>
#include <string.h>

#include "base/machine.h"
#include "base/team.h"
#include "engine/widest.h"
#include "train/probe.h"
#include "train/trajectory.h"

const char *jump_outcome_name(enum jump_outcome o)
{
    static const char *const names[] = {[JUMP_REJECTED] = "rejected",
                                        [JUMP_ACCEPTED] = "accepted",
                                        [JUMP_WITHHELD] = "withheld",
                                        [JUMP_UNDONE] = "undone"};
    return names[o];
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* The part that is moved at once comes first, then the copies. */
int64_t jump_bytes(void)
{
    return WIDEST_MOST * (int64_t)sizeof(float);
}

static float *moved_part(const struct session *s)
{
    return engine_reserve(&s->engine, SNAPSHOTS_NAME, NULL);
}

static float *snapshot(const struct session *s, int slot)
{
    int64_t n_trained = model_count_trained(&s->train->io);
    return moved_part(s) + WIDEST_MOST + slot * n_trained;
}

/* Parameter i from element `at` on: where in a snapshot. */
struct part {
    int param;
    int64_t at, n, in_snapshot;
};

typedef enum status part_work(struct session *s, const struct part *p, void *user);

/* Every trained parameter, in parts of as much as goes at once. */
static enum status for_parts(struct session *s, part_work *work, void *user)
{
    const struct engine *e = &s->engine;
    int64_t first = 0;
    for (int i = 0; i < e->n_params; i++) {
        int64_t n = e->params[i].frozen ? 0 : shape_elems(&e->params[i].shape);
        for (int64_t at = 0; at < n; at += WIDEST_MOST) {
            struct part p = {i, at, MIN((int64_t)WIDEST_MOST, n - at), first + at};
            TRY(work(s, &p, user));
        }
        first += n;
    }
    return OK;
}

static enum status take_part(struct session *s, const struct part *p, void *user)
{
    float *to = (float *)user + p->in_snapshot;
    return widest_read(&s->engine, p->param, p->at, p->n, to);
}

static enum status put_part(struct session *s, const struct part *p, void *user)
{
    const float *from = (const float *)user + p->in_snapshot;
    return widest_write(&s->engine, p->param, p->at, p->n, from);
}

enum status jump_snapshot(struct session *s, int slot)
{
    return for_parts(s, take_part, snapshot(s, slot));
}

enum status jump_undo(struct session *s)
{
    return for_parts(s, put_part, snapshot(s, (int)s->config->snapshot_count - 1));
}

enum status jump_add_states(const struct session *s, unsigned slots, struct engine_states *states)
{
    static const char *const names[TRAJECTORY_MOST] = {
        "snapshot.0",  "snapshot.1",  "snapshot.2",  "snapshot.3", "snapshot.4",  "snapshot.5",
        "snapshot.6",  "snapshot.7",  "snapshot.8",  "snapshot.9", "snapshot.10", "snapshot.11",
        "snapshot.12", "snapshot.13", "snapshot.14", "snapshot.15"};
    for (int i = 0; i < TRAJECTORY_MOST; i++) {
        struct checkpoint_tensor t = {.name = names[i], .tensor.dtype = DTYPE_F32};
        if (!(slots >> i & 1u))
            continue;
        t.tensor.shape = shape_of(1, model_count_trained(&s->train->io));
        t.tensor.data = snapshot(s, i);
        TRY(vec_push(&states->list, t));
    }
    return OK;
}

/* ---- the jump -------------------------------------------------------------------------------- */

struct proposal {
    const struct config *config;
    int n;    /* snapshots */
    double k; /* intervals between them */
    const float *x[TRAJECTORY_MOST];
    double q[TRAJECTORY_MOST];
};

/* Elements that several threads share, from these places of the snapshots on. */
struct shared {
    const struct proposal *proposal;
    const float *x[TRAJECTORY_MOST];
    int64_t n_elems;
    float *to;
    double *grams; /* of each piece its own: sums do not depend on who made them */
};

enum { GRAIN = 1 << 12, PIECE = 1 << 14, GRAM_ELEMS = TRAJECTORY_MOST * TRAJECTORY_MOST };
_Static_assert((WIDEST_MOST / PIECE) * GRAM_ELEMS * sizeof(double) <= WIDEST_MOST * sizeof(float),
               "products of all pieces of a part have room where the part is moved");

static struct shared share(struct session *s, const struct proposal *j, int64_t at, int64_t n)
{
    struct shared w = {.proposal = j, .n_elems = n, .to = moved_part(s)};
    w.grams = (double *)(void *)w.to;
    for (int i = 0; i < j->n; i++)
        w.x[i] = j->x[i] + at;
    return w;
}

static void locate(const struct shared *w, int64_t first, const float **x)
{
    for (int i = 0; i < w->proposal->n; i++)
        x[i] = w->x[i] + first;
}

static void add_pieces(const void *job, int64_t first, int64_t last, int thread)
{
    const struct shared *w = job;
    const float *x[TRAJECTORY_MOST];
    (void)thread;
    for (int64_t i = first; i < last; i++) {
        locate(w, i * PIECE, x);
        trajectory_add_gram(x, w->proposal->n, MIN((int64_t)PIECE, w->n_elems - i * PIECE),
                            w->grams + i * GRAM_ELEMS);
    }
}

/* Products of the steps of a whole tensor. */
static void add_products(struct session *s, const struct proposal *j, const struct part *p,
                         double *gram)
{
    int64_t n = shape_elems(&s->engine.params[p->param].shape);
    for (int64_t at = 0; at < n; at += WIDEST_MOST) {
        struct shared w = share(s, j, p->in_snapshot + at, MIN((int64_t)WIDEST_MOST, n - at));
        int64_t n_pieces = (w.n_elems + PIECE - 1) / PIECE;
        memset(w.grams, 0, (size_t)(n_pieces * GRAM_ELEMS) * sizeof(*w.grams));
        team_run(s->engine.device->env.team, n_pieces, 1, add_pieces, &w);
        for (int64_t i = 0; i < n_pieces * GRAM_ELEMS; i++)
            gram[i % GRAM_ELEMS] += w.grams[i];
    }
}

/* The weights of the steps between snapshots, for the tensor that this is the first part of. */
static void weigh(struct session *s, struct proposal *j, const struct part *p)
{
    double gram[GRAM_ELEMS] = {0};
    trajectory_linear(j->n, j->k, j->q);
    if (j->config->predictive_phases != CONFIG_PHASES_DMD)
        return;
    add_products(s, j, p, gram);
    trajectory_dmd(j->n, gram, j->k, j->q);
}

static void follow(const void *job, int64_t first, int64_t last, int thread)
{
    const struct shared *w = job;
    const struct proposal *j = w->proposal;
    const float *x[TRAJECTORY_MOST];
    (void)thread;
    locate(w, first, x);
    if (j->config->predictive_phases == CONFIG_PHASES_LEAST_SQUARES)
        (void)trajectory_follow_lines(x, j->n, j->k, j->config->jump_shrinkage, last - first,
                                      w->to + first);
    else
        trajectory_follow(x, j->n, j->q, last - first, w->to + first);
}

static enum status move_part(struct session *s, const struct part *p, void *user)
{
    struct proposal *j = user;
    if (p->at == 0)
        weigh(s, j, p);
    struct shared w = share(s, j, p->in_snapshot, p->n);
    team_run(s->engine.device->env.team, p->n, GRAIN, follow, &w);
    return widest_write(&s->engine, p->param, p->at, p->n, w.to);
}

static enum status move(struct session *s, double n_steps)
{
    struct proposal j = {.config = s->config,
                         .n = (int)s->config->snapshot_count,
                         .k = n_steps / (double)s->config->snapshot_steps};
    for (int i = 0; i < j.n; i++)
        j.x[i] = snapshot(s, i);
    return for_parts(s, move_part, &j);
}

/* First moments, where they are to begin again. */
static enum status settle_momentum(struct session *s)
{
    const struct engine *e = &s->engine;
    struct engine_states states = {0};
    if (s->config->jump_momentum == CONFIG_JUMP_MOMENTUM_KEEP)
        return OK;
    enum status status = engine_find_states(e, &states);
    for (size_t i = 0; i < states.list.n && status == OK; i++) {
        const struct checkpoint_tensor *t = &states.list.items[i];
        if (strncmp(t->name, "m.", 2) != 0)
            continue;
        status = stage_set(e->stage, &t->tensor, 0);
    }
    vec_release(&states.list);
    return status;
}

/* NaN is no improvement. */
static bool is_better(const struct probe_difference *d, double z)
{
    return d->mean < 0 && d->mean < -z * d->error;
}

static enum status try_lengths(struct session *s, double n_steps, struct jump_record *r)
{
    enum { TRIALS = 3 };
    int64_t n = s->config->probe_batches;
    double *before = probe_losses(s), *after = before + n;
    TRY(probe_run(s, before));
    for (; r->n_tried < TRIALS && r->outcome != JUMP_ACCEPTED; n_steps /= 2) {
        TRY(move(s, n_steps));
        TRY(probe_run(s, after));
        struct probe_difference d = probe_compare(before, after, n);
        r->n_tried++;
        r->probe_loss = d.before;
        r->difference = d.mean;
        r->error = d.error;
        if (is_better(&d, s->config->jump_z)) {
            r->outcome = JUMP_ACCEPTED;
            r->length = n_steps;
        }
    }
    return r->outcome == JUMP_ACCEPTED ? settle_momentum(s) : jump_undo(s);
}

enum status jump_try(struct session *s, double n_steps, struct jump_record *r)
{
    double began = now_s();
    *r = (struct jump_record){.method =
                                  config_choice_name("phases", (int)s->config->predictive_phases),
                              .n_steps = n_steps};
    TRY(try_lengths(s, n_steps, r));
    r->seconds = now_s() - began;
    return OK;
}
