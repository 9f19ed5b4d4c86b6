/* parse.c: the text form (see print.c) back into a graph.
 *
 * Nodes go through graph_add_node, so arity, attributes and inference are checked as for any other
 * builder, and what the text declares must be what inference finds. graph_add_node numbers values
 * in the order they appear; when the text's numbers are in another order (nodes were reordered
 * after they were built) the value table is permuted at the end. Numbers must be dense. Whether
 * updates overwrite something still needed is graph_check's question. */
#include <string.h>

#include "graph/graph.h"
#include "graph/text.h"

enum { MAX_DECLARED = 8 }; /* outputs of one node */

struct declaration {
    struct text_place place;
    int64_t id;
    size_t name; /* offset of its NUL-terminated name in parser.names */
    enum dtype dtype;
    struct shape shape;
    enum role role;
};

struct parser {
    struct text t;
    int64_t n_chars; /* of the whole text: bounds value numbers */
    struct graph *g;
    VEC(value_id) ids;      /* number in the text -> number in g, VALUE_NONE: not seen */
    struct text_place last; /* where the highest number was declared */
    VEC(value_id) in;
    VEC(uint8_t) data;
    struct str names;
};

static enum status parse_number(struct parser *p, int64_t *id)
{
    TRY(text_need(&p->t, "%"));
    struct text_place place = text_here(&p->t);
    TRY(text_int(&p->t, id));
    if (*id < 0 || *id >= p->n_chars || *id >= INT32_MAX)
        return TEXT_FAIL_AT(place, "%%%lld cannot be: values are numbered from 0 without gaps",
                            (long long)*id);
    return OK;
}

/* A value that was declared before. */
static enum status parse_operand(struct parser *p, value_id *v)
{
    struct text_place place = text_here(&p->t);
    int64_t id;
    TRY(parse_number(p, &id));
    if ((size_t)id >= p->ids.n || p->ids.items[id] == VALUE_NONE)
        return TEXT_FAIL_AT(place, "%%%lld is used before it is declared", (long long)id);
    *v = p->ids.items[id];
    return OK;
}

static enum status parse_declaration(struct parser *p, struct declaration *d)
{
    d->place = text_here(&p->t);
    TRY(parse_number(p, &d->id));
    if ((size_t)d->id < p->ids.n && p->ids.items[d->id] != VALUE_NONE)
        return TEXT_FAIL_AT(d->place, "%%%lld is declared twice", (long long)d->id);
    (void)text_here(&p->t);
    d->name = p->names.n;
    if (*p->t.at == '"')
        TRY(text_quoted(&p->t, &p->names));
    str_add_n(&p->names, "", 1);
    TRY(str_status(&p->names));
    TRY(text_need(&p->t, ":"));
    struct text_place place = text_here(&p->t);
    TRY(text_dtype(&p->t, &d->dtype));
    if (d->dtype == DTYPE_NONE)
        return TEXT_FAIL_AT(place, "a value must have a dtype");
    TRY(text_shape(&p->t, &d->shape));
    char word[TEXT_WORD];
    place = text_here(&p->t);
    TRY(text_word(&p->t, word));
    if (!role_parse(word, &d->role))
        return TEXT_FAIL_AT(place, "'%s' is not a role (input, parameter, activation, ...)", word);
    return OK;
}

/* From now on the text's number means value v. */
static enum status define(struct parser *p, const struct declaration *d, value_id v)
{
    if ((size_t)d->id >= p->ids.n)
        p->last = d->place;
    while (p->ids.n <= (size_t)d->id)
        TRY(vec_push(&p->ids, VALUE_NONE));
    if (p->ids.items[d->id] != VALUE_NONE)
        return TEXT_FAIL_AT(d->place, "%%%lld is declared twice", (long long)d->id);
    p->ids.items[d->id] = v;
    return OK;
}

/* "[1, 2, 3]" after a constant or a state: as many elements as its shape has. */
static enum status parse_elements(struct parser *p, const struct declaration *d)
{
    struct text_place place = text_here(&p->t);
    int64_t n = 0, size = dtype_size(d->dtype);
    p->data.n = 0;
    TRY(text_need(&p->t, "["));
    if (!text_take(&p->t, "]")) {
        do {
            TRY(vec_reserve(&p->data, size));
            TRY(text_element(&p->t, d->dtype, p->data.items + p->data.n));
            p->data.n += (size_t)size;
            n++;
        } while (text_take(&p->t, ","));
        TRY(text_need(&p->t, "]"));
    }
    if (n != shape_elems(&d->shape))
        return TEXT_FAIL_AT(place, "%%%lld has %lld elements but %lld are given", (long long)d->id,
                            (long long)shape_elems(&d->shape), (long long)n);
    return OK;
}

static enum status at_place(enum status s, struct text_place place)
{
    return s == OK ? OK : status_prefix(s, "line %d, column %d", place.line, place.column);
}

static enum status add_source(struct parser *p, const struct declaration *d, bool has_data)
{
    const char *name = p->names.text + d->name;
    value_id v;
    /* Adding first, without elements, refuses sizes that overflow before they are counted. */
    TRY(at_place(graph_add_value(p->g, name, d->role, d->dtype, d->shape, NULL, &v), d->place));
    TRY(define(p, d, v));
    if (!has_data)
        return OK;
    if (d->role != ROLE_CONSTANT && d->role != ROLE_STATE)
        return TEXT_FAIL_AT(d->place, "only constants and states have elements");
    TRY(parse_elements(p, d));
    void *copy;
    TRY(pool_try(&p->g->pool, &copy, MAX(p->data.n, (size_t)1)));
    if (p->data.n)
        memcpy(copy, p->data.items, p->data.n);
    graph_value(p->g, v)->data = copy;
    return OK;
}

static enum status parse_inputs(struct parser *p)
{
    p->in.n = 0;
    TRY(text_need(&p->t, "("));
    if (text_take(&p->t, ")"))
        return OK;
    do {
        value_id v = VALUE_NONE;
        if (!text_take_word(&p->t, "_"))
            TRY(parse_operand(p, &v));
        TRY(vec_push(&p->in, v));
    } while (text_take(&p->t, ","));
    return text_need(&p->t, ")");
}

/* "block=3", where it is given. */
static enum status parse_place(struct parser *p, const char *what, int *number)
{
    int64_t i;
    if (!text_take_word(&p->t, what))
        return OK;
    TRY(text_need(&p->t, "="));
    struct text_place place = text_here(&p->t);
    TRY(text_int(&p->t, &i));
    if (i < 0 || i > INT32_MAX)
        return TEXT_FAIL_AT(place, "a %s number is not negative and fits 31 bits", what);
    *number = (int)i;
    return OK;
}

static enum status parse_pass(struct parser *p, enum pass *pass, int *block, int *micro)
{
    char word[TEXT_WORD];
    struct text_place place = text_here(&p->t);
    TRY(text_word(&p->t, word));
    if (!pass_parse(word, pass))
        return TEXT_FAIL_AT(place, "'%s' is not a pass (begin, forward, backward, norm, update)",
                            word);
    *block = BLOCK_NONE;
    *micro = 0;
    TRY(parse_place(p, "block", block));
    return parse_place(p, "micro", micro);
}

/* What the text says about an output against what inference says; then its name, role, number. */
static enum status accept_output(struct parser *p, const struct declaration *d, value_id v)
{
    struct value *x = graph_value(p->g, v);
    char declared[SHAPE_TEXT], inferred[SHAPE_TEXT];
    if (x->dtype != d->dtype || !shape_equal(&x->shape, &d->shape))
        return TEXT_FAIL_AT(d->place, "%%%lld is declared %s%s but inferred %s%s", (long long)d->id,
                            dtype_name(d->dtype), shape_text(declared, &d->shape),
                            dtype_name(x->dtype), shape_text(inferred, &x->shape));
    x->role = d->role;
    x->name = pool_strdup(&p->g->pool, p->names.text + d->name);
    TRY(pool_status(&p->g->pool));
    return define(p, d, v);
}

static enum status parse_node(struct parser *p, const struct declaration *d, int n_declared)
{
    struct text_place place = text_here(&p->t);
    char word[TEXT_WORD];
    enum op_id op;
    TRY(text_word(&p->t, word));
    if (!op_find(word, &op))
        return TEXT_FAIL_AT(place, "there is no op called '%s'", word);
    if (op_get(op)->n_out != n_declared)
        return TEXT_FAIL_AT(place, "%s has %d outputs but %d are declared", word, op_get(op)->n_out,
                            n_declared);
    struct attr attrs[TEXT_MAX_ATTRS] = {{0}};
    enum pass pass;
    int block, micro;
    node_id k;
    TRY(parse_inputs(p));
    TRY(text_attrs(&p->t, op_get(op), attrs));
    TRY(parse_pass(p, &pass, &block, &micro));
    TRY(at_place(graph_add_node(p->g, op, p->in.items, (int)p->in.n, attrs, pass, block, &k),
                 place));
    graph_node(p->g, k)->micro = micro;
    for (int i = 0; i < n_declared; i++)
        TRY(accept_output(p, &d[i], graph_node(p->g, k)->out[i]));
    return OK;
}

static enum status parse_line(struct parser *p)
{
    struct declaration d[MAX_DECLARED];
    int n = 0;
    str_clear(&p->names);
    do {
        if (n == MAX_DECLARED)
            return TEXT_FAIL(&p->t, "a node has at most %d outputs", MAX_DECLARED);
        TRY(parse_declaration(p, &d[n]));
        n++;
    } while (text_take(&p->t, ","));
    bool more = text_take(&p->t, "=");
    (void)text_here(&p->t);
    if (more && *p->t.at != '[')
        return parse_node(p, d, n);
    if (n > 1)
        return TEXT_FAIL(&p->t, "expected '= op(...)': several values on one line have a producer");
    return add_source(p, &d[0], more);
}

static enum status parse_output(struct parser *p)
{
    value_id v;
    str_clear(&p->names);
    TRY(text_quoted(&p->t, &p->names));
    TRY(parse_operand(p, &v));
    return graph_add_output(p->g, str_text(&p->names), v);
}

/* Gives every value the number the text gave it. */
static enum status renumber(struct parser *p)
{
    struct graph *g = p->g;
    for (size_t i = 0; i < p->ids.n; i++) {
        if (p->ids.items[i] == VALUE_NONE)
            return TEXT_FAIL_AT(p->last, "%%%zu stands here but %%%zu is declared nowhere",
                                p->ids.n - 1, i);
    }
    struct value *values;
    value_id *number;
    TRY(mem_try_array(&values, MAX(g->values.n, (size_t)1), sizeof(*values)));
    enum status status = mem_try_array(&number, MAX(g->values.n, (size_t)1), sizeof(*number));
    if (status != OK) {
        mem_free(values);
        return status;
    }
    for (size_t i = 0; i < g->values.n; i++) {
        values[i] = g->values.items[p->ids.items[i]];
        number[p->ids.items[i]] = (value_id)i;
    }
    for (size_t i = 0; i < g->values.n; i++)
        g->values.items[i] = values[i];
    for (size_t k = 0; k < g->nodes.n; k++) {
        struct node *n = graph_node(g, (node_id)k);
        for (int i = 0; i < n->n_in; i++)
            n->in[i] = n->in[i] == VALUE_NONE ? VALUE_NONE : number[n->in[i]];
        for (int i = 0; i < n->n_out; i++)
            n->out[i] = number[n->out[i]];
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        g->outputs.items[i].value = number[g->outputs.items[i].value];
    mem_free(values);
    mem_free(number);
    return OK;
}

static enum status parse_graph(struct parser *p)
{
    if (!text_take_word(&p->t, "graph"))
        return TEXT_FAIL(&p->t, "expected 'graph \"name\" {' here");
    TRY(text_quoted(&p->t, &p->names));
    TRY(graph_new(&p->g, str_text(&p->names)));
    TRY(text_need(&p->t, "{"));
    while (!text_take(&p->t, "}")) {
        if (text_take_word(&p->t, "output"))
            TRY(parse_output(p));
        else
            TRY(parse_line(p));
    }
    if (!text_at_end(&p->t))
        return TEXT_FAIL(&p->t, "there is more after the graph's closing brace");
    return renumber(p);
}

enum status graph_parse(struct graph **out, const char *text)
{
    struct parser p = {.n_chars = (int64_t)strlen(text)};
    text_init(&p.t, text);
    enum status status = parse_graph(&p);
    if (status != OK) {
        graph_free(p.g);
        p.g = NULL;
    }
    vec_release(&p.ids);
    vec_release(&p.in);
    vec_release(&p.data);
    str_release(&p.names);
    *out = p.g;
    return status;
}
