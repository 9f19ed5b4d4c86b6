/* updates.h: inside optim/: one parameter's update, with the states its format asks for. */
#ifndef SNUG_OPTIM_UPDATES_H
#define SNUG_OPTIM_UPDATES_H

#include "optim/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rates of parameters that learn faster or slower, each made once. */
enum { MOST_RATES = 64 };

/* The scalars every update reads. */
struct knobs {
    value_id lr, step, scale;
    struct {
        double factor;
        value_id lr;
    } rates[MOST_RATES];
    int n_rates;
};

/* What an update leaves. */
struct updated {
    value_id param, master; /* VALUE_NONE: there is none in f32 */
};

/* Matrices that a parameter is made of, at most; with more it is one to Muon. */
enum { MUON_PIECES = 16 };

/* "<prefix>.<name>" in the graph's pool; "" once the builder has failed. */
const char *joined_name(struct builder *b, const char *prefix, const char *name);

/* Adds states, master and update of parameter i of the model, and what follows of its averages. */
void update_build(struct builder *b, const struct optimizer_options *o,
                  const struct optimizer_param *p, struct knobs *k, size_t i_param);

/* The tensors that numbers of the parameter's shape consist of, appended to in[n ..]; how many
 * there are then. */
int update_add_parts(struct builder *b, const char *prefix, const struct optimizer_param *p,
                     enum role role, enum format format, value_id *in, int n);
/* Of what is rounded by chance: every parameter draws its own numbers. */
int64_t update_seed(const struct optimizer_options *o, size_t i_param);

/* Whether Muon updates the parameter, and its nodes. */
bool muon_takes(const struct builder *b, const struct optimizer_param *p);
struct updated muon_build(struct builder *b, const struct optimizer_options *o,
                          const struct optimizer_param *p, const struct knobs *k, size_t i_param);

#ifdef __cplusplus
}
#endif
#endif
