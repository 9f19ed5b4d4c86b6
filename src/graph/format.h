/* format.h: how numbers are kept that outlive a step: parameters, masters, optimizer states.
 *
 * What is one tensor to the mathematics may be several in memory: a block-wise format has codes,
 * one for each element, and a scale for each block of elements in row-major order. Everything that
 * names, sizes or saves such numbers asks here which tensors they consist of.
 */
#ifndef SNUG_GRAPH_FORMAT_H
#define SNUG_GRAPH_FORMAT_H

#include "graph/factored.h"
#include "graph/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum format {
#define FORMAT(name, text, dtype, block) FORMAT_##name,
#include "graph/formats.def"
#undef FORMAT
    FORMAT_COUNT
};

/* One of the tensors that numbers in a format consist of. */
struct format_part {
    const char *suffix; /* its name is that of the whole, a dot, and this; "": that of the whole */
    enum dtype dtype;
    struct shape shape;
};

enum { FORMAT_PARTS = 2 };

const char *format_name(enum format f);
/* The format whose elements simply are of this dtype. */
enum format format_of_dtype(enum dtype d);
/* Elements that share a scale; 0: elements stand for themselves. */
int64_t format_block(enum format f);
/* The tensors that numbers of this shape consist of, elements (or codes) first; how many. */
int format_parts(enum format f, const struct shape *s, struct format_part out[FORMAT_PARTS]);
/* The same of a parameter that holds several tensors, of which a format may keep each by itself. */
int format_parts_stacked(enum format f, const struct shape *s, const struct param_tensors *k,
                         struct format_part out[FORMAT_PARTS]);
/* Bytes of them all together, of a vector. */
int64_t format_size(enum format f, int64_t n_elems);

#ifdef __cplusplus
}
#endif
#endif
