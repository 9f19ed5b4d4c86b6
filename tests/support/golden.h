/* golden.h: the models under tests/golden, put into graphs and run: what tests of models share.
 * Everything fails the test instead of returning an error. */
#ifndef SNUG_TESTS_GOLDEN_H
#define SNUG_TESTS_GOLDEN_H

#include "io/safetensors.h"
#include "model/model.h"
#include "support/eval.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Folders under tests/golden, NULL-terminated. */
extern const char *const golden_names[];
/* Those that tests train, step after step: all of them, but some only under sanitizers. */
extern const char *const *const golden_trained;

enum { GOLDEN_BATCH = 3, GOLDEN_LENGTH = 24, GOLDEN_VOCAB = 97 };

/* A model of tests/golden in a graph; eval is NULL until golden_start. */
struct golden {
    char folder[512];
    struct st_reader *reader; /* golden.safetensors */
    char adapter[512];        /* folder; "": none */
    struct st_reader *adapter_reader;
    struct model *model;
    struct graph *graph;
    struct builder builder;
    struct model_graph built;
    struct eval *eval;
};

/* config_file: "config.json" or "config_v4.json". */
void golden_open(struct golden *g, const char *name, const char *config_file,
                 const struct model_request *request);
/* Adapters under tests/golden/adapters, and the models they are beside; NULL-terminated. */
struct golden_adapter {
    const char *name, *base;
};
extern const struct golden_adapter golden_adapters[];
/* The same of a model with an adapter; golden_get then looks among the adapter's tensors first. */
void golden_open_adapted(struct golden *g, const struct golden_adapter *a,
                         const struct model_request *request);
/* Allocates the graph's values (as it is now), loads the weights, clears the caches. */
void golden_start(struct golden *g);
void golden_close(struct golden *g);

/* An input of the graph by its name; the sum and the count of its loss. */
value_id golden_input(const struct golden *g, const char *name);
value_id golden_loss(const struct golden *g);
value_id golden_count(const struct golden *g);

struct golden_facts {
    bool has_experts; /* a rounding may send a token elsewhere */
    bool norms_sums;  /* what is added to the residual is normed first: no product takes the sum */
    bool is_coupled; /* losses go by whole micro-batches: small ones do not add up to a large one */
};
struct golden_facts golden_facts_of(const char *name);

/* A tensor of golden.safetensors as doubles (freed with mem_free); its number of elements. */
int64_t golden_get(const struct golden *g, const char *name, double **out);
/* Copies an I32 tensor of golden.safetensors into a value. */
void golden_fill(const struct golden *g, value_id v, const char *name);
/* Value v as doubles (freed with mem_free). */
double *golden_value(const struct golden *g, value_id v);

/* |a - b| / |b| as vectors. */
double relative_error(const double *a, const double *b, int64_t n);

/* Fails the test with the error's message unless s is OK. */
void expect_ok(enum status s);

#ifdef __cplusplus
}
#endif
#endif
