/* chat_render.c: a conversation in the words of its family. */
#include <string.h>
#include <utf8proc.h>

#include "data/chat.h"

void spanned_text_clear(struct spanned_text *t)
{
    str_clear(&t->text);
    t->spans.n = 0;
}

void spanned_text_release(struct spanned_text *t)
{
    str_release(&t->text);
    vec_release(&t->spans);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Text of the table, with what its marks stand for. */
static void add_words(const struct chat_template *c, const char *words, struct str *out)
{
    for (const char *at = words; at && *at; at++) {
        const struct str *mark = *at == '\1'   ? &c->bos
                                 : *at == '\2' ? &c->eos
                                 : *at == '\3' ? &c->date
                                               : NULL;
        if (mark)
            str_add_n(out, str_text(mark), mark->n);
        else
            str_add_n(out, at, 1);
    }
}

struct piece {
    const char *text;
    size_t n;
};

/* What Python's str.strip() takes away. */
static int is_space(int32_t c)
{
    utf8proc_category_t category = utf8proc_category(c);
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F) || c == 0x85 ||
           (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

static struct piece trim(struct piece p)
{
    int32_t c;
    while (p.n > 0) {
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)p.text, (utf8proc_ssize_t)p.n, &c);
        if (n < 1 || !is_space(c))
            break;
        p.text += n;
        p.n -= (size_t)n;
    }
    while (p.n > 0) {
        size_t start = p.n - 1;
        while (start > 0 && ((uint8_t)p.text[start] & 0xC0) == 0x80)
            start--;
        if (utf8proc_iterate((const utf8proc_uint8_t *)p.text + start,
                             (utf8proc_ssize_t)(p.n - start), &c) < 1 ||
            !is_space(c))
            break;
        p.n = start;
    }
    return p;
}

static struct piece trim_lines(struct piece p, int left, int right)
{
    while (left && p.n > 0 && p.text[0] == '\n') {
        p.text++;
        p.n--;
    }
    while (right && p.n > 0 && p.text[p.n - 1] == '\n')
        p.n--;
    return p;
}

static const char *find_in(struct piece p, const char *word)
{
    return p.n ? memmem(p.text, p.n, word, strlen(word)) : NULL;
}

/* ---- thoughts -------------------------------------------------------------------------------- */

static const char think[] = "<think>", unthink[] = "</think>";

/* What follows the last `word` in p. */
static struct piece behind_last(struct piece p, const char *word)
{
    for (const char *at = find_in(p, word); at; at = find_in(p, word)) {
        const char *rest = at + strlen(word);
        p = (struct piece){rest, p.n - (size_t)(rest - p.text)};
    }
    return p;
}

/* An answer's thoughts and the answer without them. */
static struct piece take_thoughts(struct piece *answer)
{
    const char *end = find_in(*answer, unthink);
    if (!end)
        return (struct piece){"", 0};
    struct piece thoughts = {answer->text, (size_t)(end - answer->text)};
    *answer = trim_lines(behind_last(*answer, unthink), 1, 0);
    return trim_lines(behind_last(trim_lines(thoughts, 0, 1), think), 1, 1);
}

/* ---- turns ----------------------------------------------------------------------------------- */

struct render {
    const struct chat_template *c;
    const struct chat_message *messages;
    size_t n;
    size_t first;               /* message: a system message before it is put into another */
    const struct piece *system; /* that one; NULL: none */
    size_t last_question;
    struct spanned_text *out;
};

/* A message, with the system message where it goes into this one. */
static void add_content(const struct render *r, size_t i, struct piece text)
{
    const struct chat_family *f = r->c->family;
    struct str *out = &r->out->text;
    enum chat_role role = r->messages[i].role;
    int trims = (f->trims >> role & 1) != 0;
    int joins = r->system && role == CHAT_USER &&
                i == (f->system == CHAT_SYSTEM_FIRST ? r->first : r->n - 1);
    if (trims && !(joins && f->joins_first))
        text = trim(text);
    else if (trims)
        text.n = (size_t)(trim(text).text - text.text) + trim(text).n; /* its end alone is one */
    if (joins) {
        add_words(r->c, f->system_before, out);
        str_add_n(out, r->system->text, r->system->n);
        add_words(r->c, f->system_after, out);
    }
    str_add_n(out, text.text, text.n);
}

static void add_answer(const struct render *r, size_t i, struct piece text)
{
    struct str *out = &r->out->text;
    struct piece thoughts = take_thoughts(&text);
    int is_last = i + 1 == r->n;
    if (i > r->last_question && (is_last || thoughts.n > 0)) {
        str_add(out, "<think>\n");
        str_add_n(out, thoughts.text, thoughts.n);
        str_add(out, "\n</think>\n\n");
        text = trim_lines(text, 1, 0);
    }
    str_add_n(out, text.text, text.n);
}

static enum status add_turn(const struct render *r, size_t i)
{
    const struct chat_message *m = &r->messages[i];
    const struct chat_turn *turn = &r->c->family->turns[m->role];
    struct str *out = &r->out->text;
    struct piece text = {m->text, m->n};
    add_words(r->c, turn->before, out);
    struct text_span span = {.start = out->n};
    add_words(r->c, turn->lead, out);
    if (m->role == CHAT_SYSTEM)
        add_words(r->c, r->c->family->system_lead, out);
    if (m->role == CHAT_ASSISTANT && r->c->family->thinks)
        add_answer(r, i, text);
    else
        add_content(r, i, text);
    add_words(r->c, turn->end, out);
    span.end = out->n;
    add_words(r->c, turn->after, out);
    if (m->role == CHAT_ASSISTANT && !m->is_masked && span.end > span.start)
        TRY(vec_push(&r->out->spans, span));
    return str_status(out);
}

/* ---- conversations --------------------------------------------------------------------------- */

static const char *role_name(enum chat_role role)
{
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

static enum status check_order(const struct render *r)
{
    const struct chat_family *f = r->c->family;
    if (f->system == CHAT_SYSTEM_NONE && r->first > 0)
        return FAIL(ERR_DATA,
                    "the chat template (%s) has no place for a system message: leave it out, or "
                    "name another with chat_template",
                    f->name);
    for (size_t i = r->first; i < r->n && f->alternates; i++) {
        enum chat_role expected = (i - r->first) % 2 ? CHAT_ASSISTANT : CHAT_USER;
        if (r->messages[i].role != expected)
            return FAIL(ERR_DATA,
                        "message %zu is the %s's; with the chat template %s user and assistant "
                        "take turns, the user first",
                        i, role_name(r->messages[i].role), f->name);
    }
    return OK;
}

/* The last message of the user. Without one, all come after it is none: Qwen's template counts
 * from the end then. */
static size_t last_question(const struct chat_message *m, size_t n)
{
    for (size_t i = n; i > 0; i--) {
        if (m[i - 1].role == CHAT_USER)
            return i - 1;
    }
    return n - 1;
}

static enum status add_default_system(const struct render *r)
{
    const struct chat_template *c = r->c;
    if (!c->has_default || r->messages[0].role == CHAT_SYSTEM)
        return OK;
    const struct chat_message system = {
        .role = CHAT_SYSTEM, .text = str_text(&c->default_system), .n = c->default_system.n};
    const struct render one = {.c = c, .messages = &system, .n = 1, .out = r->out};
    return add_turn(&one, 0);
}

enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t n, int open, struct spanned_text *out)
{
    const struct chat_family *f = c->family;
    if (n == 0)
        return FAIL(ERR_DATA, "the conversation has no messages");
    int moves = f->system != CHAT_SYSTEM_TURN && messages[0].role == CHAT_SYSTEM;
    const struct piece system = {messages[0].text, messages[0].n};
    struct render r = {.c = c,
                       .messages = messages,
                       .n = n,
                       .first = (size_t)moves,
                       .system = moves ? &system : NULL,
                       .last_question = last_question(messages, n),
                       .out = out};
    TRY(check_order(&r));
    if (c->has_bos)
        str_add_n(&out->text, str_text(&c->bos), c->bos.n);
    add_words(c, f->begin, &out->text);
    TRY(add_default_system(&r));
    for (size_t i = r.first; i < n; i++)
        TRY(add_turn(&r, i));
    add_words(c, open ? f->turns[CHAT_ASSISTANT].before : f->tail, &out->text);
    return str_status(&out->text);
}
