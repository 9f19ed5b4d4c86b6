/* sample.h: reading the sample texts of ops (struct op_sample in op.h): what the law tests and
 * benchmarks run an op on. */
#ifndef SNUG_GRAPH_SAMPLE_H
#define SNUG_GRAPH_SAMPLE_H

#include "graph/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sample_fill {
    FILL_NORMAL,   /* plain floats: normal draws */
    FILL_POSITIVE, /* `+`: floats uniform in [0.5, 1.5) */
    FILL_EQUAL,    /* `=C`: all elements are `value` */
    FILL_RANGE,    /* `~N`, `~A:N`: integers uniform in [low, high); plain integers are zeros */
};

struct sample_input {
    enum dtype dtype; /* NONE: absent (`_`) */
    struct shape shape;
    enum sample_fill fill;
    double value;
    int64_t low, high;
};

enum { SAMPLE_MAX_INPUTS = 16, SAMPLE_MAX_ATTRS = 24 };

struct sample {
    int n_in;
    struct sample_input in[SAMPLE_MAX_INPUTS];
    struct attr attrs[SAMPLE_MAX_ATTRS]; /* complete, in the order of op_def.attrs */
};

/* ERR_DATA: the text is not a sample; ERR_SHAPE: an attribute is unknown, repeated or missing. */
enum status sample_parse(struct sample *out, const struct op_def *def, const char *text) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
