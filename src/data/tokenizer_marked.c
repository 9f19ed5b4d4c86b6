/* tokenizer_marked.c: which token a character ended up in.
 *
 * Between added tokens, the tokens of a text are its normal form cut into pieces: so a character's
 * token is found by adding up their bytes. A space that was put in front belongs to the first one.
 */
#include "base/utf8.h"
#include "base/vec.h"
#include "data/tokenizer_internal.h"

struct marks {
    const size_t *bytes;
    size_t n, i; /* i: the first that is not found yet */
    size_t *tokens;
    size_t start; /* of the text at hand in the whole */
};

/* Those before `end`, a place in the text at hand, lie in one token. */
static void set_all(struct marks *m, size_t end, size_t token)
{
    for (; m->i < m->n && m->bytes[m->i] < m->start + end; m->i++)
        m->tokens[m->i] = token;
}

/* Bytes of normal text that a token stands for. */
static size_t token_length(const struct encoder *e, int32_t id)
{
    const struct added_set *set = &e->t->added_normalized;
    size_t n_bytes;
    for (size_t i = 0; i < set->n; i++) {
        if (set->tokens[i].id == id)
            return set->tokens[i].n_bytes;
    }
    (void)tokenizer_token_bytes(e->t, id, &n_bytes);
    return n_bytes;
}

/* Text without added tokens: text[from..to), the first of its tokens, bytes of its normal form. */
struct run {
    const char *text;
    size_t from, to;
    int begins;
    size_t first_token, n_normal;
};

/* Bytes that the run's tokens have beyond its text: 1 for a space in front. */
static enum status surplus(const struct encoder *e, const struct run *r,
                           const struct token_list *out, size_t *n)
{
    size_t sum = 0;
    for (size_t k = r->first_token; k < out->n; k++)
        sum += token_length(e, out->items[k]);
    *n = sum - r->n_normal;
    if (sum < r->n_normal || *n > 1)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: it cannot be told which tokens a message consists of: the tokenizer has "
                    "no tokens for some of its characters",
                    e->t->what);
    return OK;
}

static enum status find_in_run(struct encoder *e, const struct run *r, const struct token_list *out,
                               struct marks *m)
{
    size_t n_more, token = r->first_token, n_before = 0;
    if (m->i == m->n || m->bytes[m->i] >= m->start + r->to)
        return OK;
    TRY(surplus(e, r, out, &n_more));
    for (; m->i < m->n && m->bytes[m->i] < m->start + r->to; m->i++) {
        const char *normal;
        size_t n, n_text = m->bytes[m->i] - m->start - r->from;
        TRY(normalize(e, r->text + r->from, n_text, r->begins, &normal, &n));
        while (token + 1 < out->n && n_before + token_length(e, out->items[token]) <= n + n_more)
            n_before += token_length(e, out->items[token++]);
        m->tokens[m->i] = token;
    }
    return OK;
}

/* As encode_valid(). */
static enum status encode_valid_marked(struct encoder *e, const char *text, size_t n_bytes,
                                       struct part_place place, struct token_list *out,
                                       struct marks *marks)
{
    struct added_match m = {.id = 0};
    while (m.id >= 0) {
        struct run r = {.text = text, .from = m.end, .begins = 1, .first_token = out->n};
        const char *normal;
        m = added_set_find(&e->t->added_raw, text, n_bytes, &m, 0);
        r.to = m.start;
        TRY(normalize(e, text + r.from, r.to - r.from, r.begins, &normal, &r.n_normal));
        TRY(encode_normalized(e, normal, r.n_normal, place, 0, out));
        TRY(find_in_run(e, &r, out, marks));
        if (m.id >= 0) {
            set_all(marks, m.end, out->n);
            TRY(vec_push(out, m.id));
        }
        place = (struct part_place){PLACE_RUN, 0};
    }
    return OK;
}

enum status encoder_encode_marked(struct encoder *e, const char *text, size_t n_bytes,
                                  const size_t *bytes, size_t n_marks, size_t *tokens,
                                  struct token_list *out)
{
    struct part_place place = {PLACE_TEXT, 0};
    struct marks m = {.bytes = bytes, .n = n_marks, .tokens = tokens};
    for (size_t at = 0; at < n_bytes;) {
        size_t n_valid = utf8_prefix(text + at, n_bytes - at);
        m.start = at;
        TRY(encode_valid_marked(e, text + at, n_valid, place, out, &m));
        at += n_valid;
        place.kind = PLACE_RUN;
        if (at < n_bytes) {
            set_all(&m, n_valid + 1, out->n);
            TRY(bpe_encode_byte(e, (uint8_t)text[at++], out));
        }
    }
    m.start = n_bytes;
    set_all(&m, SIZE_MAX - n_bytes, out->n);
    return OK;
}
