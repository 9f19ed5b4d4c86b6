/* tokenizer_split.c: pre-tokenisation: a text through the stages into pieces that BPE merges.
 *
 * Each stage cuts a piece into smaller ones (or puts a space in front) and hands each on to the
 * next stage at once, so nothing is collected and memory does not grow with the text.
 */
#include <string.h>

#include "base/alloc.h"
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

/* PCRE2's \s matches U+180E, the Mongolian vowel separator; the engine these files are written for
 * follows newer Unicode, where that is no space. So \s is spelled out. Inside a class only \s is:
 * \S there would need the class turned inside out, and no tokenizer has it. */
static void spell_out_space(const char *pattern, struct str *out)
{
    static const char space[] = "\\t-\\r\\x{85}\\p{Z}";
    int in_class = 0;
    for (const char *p = pattern; *p; p++) {
        if (p[0] == '\\' && p[1] == 's') {
            str_addf(out, in_class ? "%s" : "[%s]", space);
            p++;
        } else if (p[0] == '\\' && p[1] == 'S' && !in_class) {
            str_addf(out, "[^%s]", space);
            p++;
        } else if (p[0] == '\\' && p[1]) {
            str_add_n(out, p++, 2);
        } else {
            if (*p == '[' && !in_class) {
                in_class = 1;
                if (p[1] == '^')
                    str_add_n(out, p++, 1);
                if (p[1] == ']') /* stands for itself in this place */
                    str_add_n(out, p++, 1);
            } else if (*p == ']') {
                in_class = 0;
            }
            str_add_n(out, p, 1);
        }
    }
}

enum status split_stage_compile(struct split_stage *stage, struct pool *pool, const char *pattern,
                                int literal)
{
    enum status status = OK;
    pcre2_general_context *general = NULL;
    pcre2_compile_context *context = NULL;
    struct str spelled = {0};
    stage->pattern = pool_strdup(pool, pattern);
    if (strlen(pattern) > MAX_PATTERN_BYTES)
        return FAIL(ERR_DATA, "a split pattern has %zu bytes; at most %d are accepted",
                    strlen(pattern), (int)MAX_PATTERN_BYTES);
    general = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    context = general ? pcre2_compile_context_create(general) : NULL;
    if (literal)
        str_add(&spelled, pattern);
    else
        spell_out_space(pattern, &spelled);
    if (!context || !stage->pattern || str_status(&spelled) != OK) {
        status = FAIL(ERR_MEMORY, "out of memory for a split pattern");
        goto out;
    }
    int error;
    PCRE2_SIZE where;
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    stage->code = pcre2_compile((PCRE2_SPTR)str_text(&spelled), PCRE2_ZERO_TERMINATED, options,
                                &error, &where, context);
    if (!stage->code) {
        char reason[128];
        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof(reason));
        status = FAIL(error == PCRE2_ERROR_HEAP_FAILED ? ERR_MEMORY : ERR_DATA,
                      "split pattern '%.200s': character %zu: %s", str_text(&spelled),
                      (size_t)where, reason);
        goto out;
    }
    /* Where this processor or system has no JIT the interpreter matches the same. */
    (void)pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE);
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

/* Next match at or after `from`: 1 and its bounds, 0 for none, a PCRE2 error code below 0. */
static int find_match(struct encoder *e, const struct split_stage *stage, const char *text,
                      size_t n_bytes, size_t from, size_t bounds[2])
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int rc = pcre2_match(stage->code, subject, n_bytes, from, options, e->match, e->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(stage->code, subject, n_bytes, from, options | PCRE2_NO_JIT, e->match,
                         e->match_context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0)
        return rc;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(e->match);
    bounds[0] = MAX(found[0], from); /* \K can move the start */
    bounds[1] = MAX(found[1], bounds[0]);
    return 1;
}

static enum status run_stage(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                             struct token_list *out);

static enum status run_regex(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                             struct token_list *out)
{
    const struct split_stage *stage = &e->t->stages[i_stage];
    size_t done = 0; /* everything before is emitted */
    for (size_t from = 0; from <= n_bytes;) {
        size_t bounds[2];
        int found = find_match(e, stage, text, n_bytes, from, bounds);
        if (found < 0) {
            char reason[128];
            (void)pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof(reason));
            return FAIL(found == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_DATA,
                        "%s: split pattern '%.200s': %s", e->t->what, stage->pattern, reason);
        }
        if (!found)
            break;
        if (stage->kind == SPLIT_REGEX)
            TRY(run_stage(e, i_stage + 1, text + done, bounds[0] - done, out));
        TRY(run_stage(e, i_stage + 1, text + bounds[0], bounds[1] - bounds[0], out));
        done = bounds[1];
        from = bounds[1]; /* past a character where the match is empty, or past the end */
        if (bounds[1] == bounds[0])
            from += character_length(text + from, n_bytes - from);
    }
    if (stage->kind == SPLIT_REGEX)
        TRY(run_stage(e, i_stage + 1, text + done, n_bytes - done, out));
    return OK;
}

static enum status run_prefix(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                              struct token_list *out)
{
    if (text[0] == ' ')
        return run_stage(e, i_stage + 1, text, n_bytes, out);
    struct str *s = &e->prefixed[i_stage];
    str_clear(s);
    str_add_n(s, " ", 1);
    str_add_n(s, text, n_bytes);
    TRY(str_status(s));
    return run_stage(e, i_stage + 1, s->text, s->n, out);
}

/* Metaspace: a mark in the text is the space that it would be taken for. */
static enum status run_spaces(struct encoder *e, int i_stage, const char *text, size_t n_bytes,
                              struct token_list *out)
{
    const struct split_stage *stage = &e->t->stages[i_stage];
    struct str *s = &e->prefixed[i_stage];
    int at_start = text == e->text_start;
    str_clear(s);
    str_add_n(s, " ", 1);
    str_add_n(s, text, n_bytes);
    TRY(str_status(s));
    char *with_space = s->text;
    n_bytes = unmark_spaces(with_space + 1, n_bytes, with_space + 1);
    int prepend = with_space[1] != ' ' && (stage->prepend == PREPEND_ALWAYS ||
                                           (stage->prepend == PREPEND_FIRST && at_start));
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
