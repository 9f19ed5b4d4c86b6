/* tokenizer_split.c: pre-tokenisation: a text through the stages into pieces that BPE merges.
 *
 * Each stage cuts a piece into smaller ones (or puts a space in front) and hands each on to the
 * next stage at once, so nothing is collected and memory does not grow with the text.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/regex.h"
#include "data/tokenizer_internal.h"

/* Steps a pattern may take for one match. Real ones need a handful; what needs more would hang. */
enum { MATCH_LIMIT = 1000000, MAX_PATTERN_BYTES = 65536 };

static void *regex_alloc(size_t n_bytes, void *unused)
{
    (void)unused;
    return mem_alloc(n_bytes);
}

static void regex_free(void *p, void *unused)
{
    (void)unused;
    mem_free(p);
}

/* The pattern in PCRE2's words. */
static enum status spell_out(const char *pattern, enum pattern_kind kind, struct str *out)
{
    if (strlen(pattern) > MAX_PATTERN_BYTES)
        return FAIL(ERR_DATA, "a split pattern has %zu bytes; at most %d are accepted",
                    strlen(pattern), (int)MAX_PATTERN_BYTES);
    if (kind == PATTERN_REGEX)
        return regex_translate(pattern, out);
    if (kind == PATTERN_NUMERIC)
        TRY(regex_numeric(out));
    str_add(out, pattern);
    return str_status(out);
}

/* Whether a match may depend on what stands before it: lookbehind, \b and \B, or an anchor. */
static int looks_back(const pcre2_code *code, const char *pattern)
{
    uint32_t n_characters = 0;
    (void)pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &n_characters);
    for (const char *p = pattern; *p; p++) {
        if (*p == '\\' && p[1])
            n_characters += strchr("AGK", *++p) != NULL;
        else if (*p == '^' && (p == pattern || p[-1] != '['))
            n_characters++;
    }
    return n_characters > 0;
}

static enum status compile(struct split_stage *stage, const char *spelled, uint32_t options,
                           pcre2_compile_context *context)
{
    int error;
    PCRE2_SIZE where;
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    stage->code =
        pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED, options, &error, &where, context);
    if (!stage->code) {
        char reason[128];
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof(reason));
        return FAIL(error == PCRE2_ERROR_HEAP_FAILED ? ERR_MEMORY : ERR_UNSUPPORTED,
                    "split pattern '%.200s' is not supported: %s", stage->pattern, reason);
    }
    /* Where this processor or system has no JIT the interpreter matches the same. */
    (void)pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    stage->looks_back = looks_back(stage->code, options & PCRE2_LITERAL ? "" : spelled);
    return OK;
}

enum status split_stage_compile(struct split_stage *stage, struct pool *pool, const char *pattern,
                                enum pattern_kind kind)
{
    enum status status;
    struct str spelled = {0};
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    pcre2_compile_context *context = general ? pcre2_compile_context_create(general) : NULL;
    stage->pattern = pool_strdup(pool, pattern);
    TRY_GOTO(spell_out(pattern, kind, &spelled), out);
    if (!context || !stage->pattern) {
        status = FAIL(ERR_MEMORY, "out of memory for a split pattern");
        goto out;
    }
    uint32_t options = kind == PATTERN_STRING ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    TRY_GOTO(compile(stage, str_text(&spelled), PCRE2_UTF | options, context), out);
out:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(general);
    str_release(&spelled);
    return status;
}

enum status encoder_init(struct encoder *e, const struct tokenizer *t, size_t n_cache)
{
    *e = (struct encoder){.t = t};
    pcre2_general_context *general = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    if (general) {
        e->match = pcre2_match_data_create(1, general);
        e->match_context = pcre2_match_context_create(general);
        pcre2_general_context_free(general);
    }
    e->cache = n_cache ? mem_calloc(n_cache, sizeof(*e->cache)) : NULL;
    e->cache_mask = n_cache - 1;
    if (!e->match || !e->match_context || (n_cache && !e->cache)) {
        encoder_release(e);
        return FAIL(ERR_MEMORY, "out of memory for an encoder");
    }
    (void)pcre2_set_match_limit(e->match_context, MATCH_LIMIT);
    return OK;
}

void encoder_release(struct encoder *e)
{
    pcre2_match_data_free(e->match);
    pcre2_match_context_free(e->match_context);
    mem_free(e->cache);
    mem_free(e->symbols.items);
    mem_free(e->heap.items);
    mem_free(e->codepoints.items);
    for (int i = 0; i < MAX_SPLIT_STAGES; i++)
        str_release(&e->prefixed[i]);
    str_release(&e->spaced);
    *e = (struct encoder){0};
}

/* Next match at or after `from`: 1 and its bounds, 0 for none, a PCRE2 error code below 0. In text
 * that is `open`, what would have to look behind its end to be sure is PCRE2_ERROR_PARTIAL, with
 * the place where it begins. */
static int find_match(struct encoder *e, const struct split_stage *stage, const char *text,
                      size_t n_bytes, size_t from, int open, size_t bounds[2])
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    uint32_t options = PCRE2_NO_UTF_CHECK | (open ? PCRE2_PARTIAL_HARD : 0);
    int rc = pcre2_match(stage->code, subject, n_bytes, from, options, e->match, e->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(stage->code, subject, n_bytes, from, options | PCRE2_NO_JIT, e->match,
                         e->match_context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0 && rc != PCRE2_ERROR_PARTIAL)
        return rc;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(e->match);
    bounds[0] = MAX(found[0], from); /* \K can move the start */
    bounds[1] = MAX(found[1], bounds[0]);
    return rc < 0 ? rc : 1;
}

static enum status match_failed(const struct encoder *e, const struct split_stage *stage, int rc)
{
    char reason[128];
    (void)pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof(reason));
    return FAIL(rc == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_DATA,
                "%s: split pattern '%.200s': %s", e->t->what, stage->pattern, reason);
}

static enum status run_stage(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                             struct token_list *out);

/* Whether this stage has seen the beginning of the piece that `text` is the rest of. */
static int goes_on(const struct encoder *e, int i_stage, const char *text)
{
    return text == e->resumed && i_stage < e->resumed_depth;
}

/* The matches, and what lies between them, up to text[*n_done]; the next match, which is not sure
 * in text that is `open`, begins at text[*n_gap]. */
static enum status run_matches(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                               int open, struct token_list *out, size_t *n_done, size_t *n_gap)
{
    const struct split_stage *stage = &e->t->stages[i_stage];
    size_t done = 0; /* everything before is emitted */
    *n_gap = n_bytes;
    for (size_t from = 0; from <= n_bytes;) {
        size_t bounds[2];
        int found = find_match(e, stage, text, n_bytes, from, open, bounds);
        if (found < 0 && found != PCRE2_ERROR_PARTIAL)
            return match_failed(e, stage, found);
        if (found < 0)
            *n_gap = bounds[0];
        if (found <= 0)
            break;
        if (bounds[0] == 0 && goes_on(e, i_stage, text))
            e->resumed = NULL; /* the piece that went on has ended where it was cut */
        if (stage->kind == SPLIT_REGEX)
            TRY(run_stage(e, i_stage + 1, text + done, bounds[0] - done, out));
        TRY(run_stage(e, i_stage + 1, text + bounds[0], bounds[1] - bounds[0], out));
        done = bounds[1];
        from = bounds[1]; /* past a character where the match is empty, or past the end */
        if (bounds[1] == bounds[0])
            from += character_length(text + from, n_bytes - from);
    }
    *n_done = done;
    return OK;
}

static enum status run_regex(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                             struct token_list *out)
{
    size_t done, gap;
    TRY(run_matches(e, i_stage, text, n_bytes, 0, out, &done, &gap));
    if (e->t->stages[i_stage].kind == SPLIT_REGEX)
        TRY(run_stage(e, i_stage + 1, text + done, n_bytes - done, out));
    return OK;
}

/* `text` with a space in front, in the stage's own memory. */
static enum status put_space(struct encoder *e, int i_stage, const char *text, size_t n_bytes)
{
    struct str *s = &e->prefixed[i_stage];
    str_clear(s);
    str_add_n(s, " ", 1);
    str_add_n(s, text, n_bytes);
    return str_status(s);
}

static enum status run_prefix(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                              struct token_list *out)
{
    if (text[0] == ' ' || goes_on(e, i_stage, text))
        return run_stage(e, i_stage + 1, text, n_bytes, out);
    TRY(put_space(e, i_stage, text, n_bytes));
    const struct str *s = &e->prefixed[i_stage];
    return run_stage(e, i_stage + 1, s->text, s->n, out);
}

/* Metaspace: a mark in the text is the space that it would be taken for. */
static enum status run_spaces(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                              struct token_list *out)
{
    const struct split_stage *stage = &e->t->stages[i_stage];
    int at_start = text == e->text_start, begun = goes_on(e, i_stage, text);
    TRY(put_space(e, i_stage, text, n_bytes));
    char *with_space = e->prefixed[i_stage].text;
    n_bytes = unmark_spaces(with_space + 1, n_bytes, with_space + 1);
    int prepend =
        with_space[1] != ' ' && !begun &&
        (stage->prepend == PREPEND_ALWAYS || (stage->prepend == PREPEND_FIRST && at_start));
    text = with_space + !prepend;
    n_bytes += (size_t)prepend;
    if (!stage->at_spaces)
        return run_stage(e, i_stage + 1, text, n_bytes, out);
    for (size_t from = 0; from < n_bytes;) {
        const char *space = memchr(text + from + 1, ' ', n_bytes - from - 1);
        size_t to = space ? (size_t)(space - text) : n_bytes;
        TRY(run_stage(e, i_stage + 1, text + from, to - from, out));
        from = to;
    }
    return OK;
}

/* Recursion is at most MAX_SPLIT_STAGES deep. */
static enum status run_stage(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                             struct token_list *out)
{
    if (n_bytes == 0)
        return OK;
    if (i_stage == e->t->n_stages)
        return bpe_encode_piece(e, text, n_bytes, out);
    if (e->t->stages[i_stage].kind == SPLIT_PREFIX_SPACE)
        return run_prefix(e, i_stage, text, n_bytes, out);
    if (e->t->stages[i_stage].kind == SPLIT_SPACES)
        return run_spaces(e, i_stage, text, n_bytes, out);
    return run_regex(e, i_stage, text, n_bytes, out);
}

enum status split_and_encode(struct encoder *e, const char *text, size_t n_bytes,
                             struct token_list *out)
{
    return run_stage(e, 0, text, n_bytes, out);
}

/* ---- text behind which more will come -------------------------------------------------------- */

/* What is sure of a text, and where it was cut: inside the pieces of `depth` stages. */
struct sure {
    size_t n_bytes;
    int depth;
};

static enum status run_open(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                            struct token_list *out, struct sure *sure);

/* Up to the end of the last match that is sure. What lies between it and the next is one piece,
 * which goes on: the next stage may find a place inside of it. */
static enum status open_regex(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                              struct token_list *out, struct sure *sure)
{
    size_t done, gap;
    if (e->t->stages[i_stage].looks_back)
        return OK;
    TRY(run_matches(e, i_stage, text, n_bytes, 1, out, &done, &gap));
    if (e->t->stages[i_stage].kind == SPLIT_REGEX_MATCHES) { /* the gap is left out */
        *sure = (struct sure){gap, i_stage};
        return OK;
    }
    TRY(run_open(e, i_stage + 1, text + done, gap - done, out, sure));
    if (sure->n_bytes == 0)
        sure->depth = i_stage;
    sure->n_bytes += done;
    return OK;
}

static enum status open_prefix(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                               struct token_list *out, struct sure *sure)
{
    if (text[0] == ' ' || goes_on(e, i_stage, text))
        return run_open(e, i_stage + 1, text, n_bytes, out, sure);
    size_t n_before = out->n;
    TRY(put_space(e, i_stage, text, n_bytes));
    const struct str *s = &e->prefixed[i_stage];
    TRY(run_open(e, i_stage + 1, s->text, s->n, out, sure));
    if (sure->n_bytes <= 1) /* the space in front is not text */
        out->n = n_before;
    sure->n_bytes -= MIN(sure->n_bytes, (size_t)1);
    return OK;
}

static size_t last_space(const char *text, size_t n_bytes)
{
    const size_t n_mark = sizeof(SPACE_MARK) - 1;
    for (size_t at = n_bytes; --at > 0;)
        if (text[at] == ' ' ||
            (n_bytes - at >= n_mark && memcmp(text + at, SPACE_MARK, n_mark) == 0))
            return at;
    return 0;
}

/* Before the last space, or in text without one at a place that no merge crosses. */
static enum status open_spaces(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                               struct token_list *out, struct sure *sure)
{
    size_t at = e->t->stages[i_stage].at_spaces ? last_space(text, n_bytes) : 0;
    *sure = (struct sure){at, i_stage};
    if (at == 0 && i_stage + 1 == e->t->n_stages)
        *sure = (struct sure){bpe_boundary(e->t, text, n_bytes), i_stage + 1};
    return sure->n_bytes > 0 ? run_spaces(e, i_stage, text, sure->n_bytes, out) : OK;
}

static enum status run_open(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                            struct token_list *out, struct sure *sure)
{
    *sure = (struct sure){0};
    if (n_bytes == 0)
        return OK;
    if (i_stage == e->t->n_stages) {
        *sure = (struct sure){bpe_boundary(e->t, text, n_bytes), i_stage};
        return bpe_encode_piece(e, text, sure->n_bytes, out);
    }
    if (e->t->stages[i_stage].kind == SPLIT_PREFIX_SPACE)
        return open_prefix(e, i_stage, text, n_bytes, out, sure);
    if (e->t->stages[i_stage].kind == SPLIT_SPACES)
        return open_spaces(e, i_stage, text, n_bytes, out, sure);
    return open_regex(e, i_stage, text, n_bytes, out, sure);
}

enum status split_and_encode_open(struct encoder *e, const char *text, size_t n_bytes,
                                  struct token_list *out, size_t *n_done, int *depth)
{
    struct sure sure;
    TRY(run_open(e, 0, text, n_bytes, out, &sure));
    *n_done = sure.n_bytes;
    *depth = sure.depth;
    return OK;
}
