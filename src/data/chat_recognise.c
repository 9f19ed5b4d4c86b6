/* chat_recognise.c: which family a Jinja template belongs to.
 *
 * The same template is written in many ways. It is first brought into one spelling:
 *
 *     {{- "<|im_start|>" + message['role'] }}        {{'<|im_start|>'+message.role+'\n'}}
 *     {{- '\n' }}                              ->
 *
 * no space outside of texts, one kind of quotes, escapes replaced, members with a point, `trim` for
 * `strip()`, texts that are joined in one, outputs in a row in one, and the text between tags as an
 * output, as far as Jinja keeps it (Hugging Face sets trim_blocks and lstrip_blocks). What a family
 * is known by (chat_families.c) are expressions in this spelling.
 */
#include <string.h>

#include "data/chat.h"

/* ---- one spelling ---------------------------------------------------------------------------- */

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void add_escaped(struct str *out, char c)
{
    const char *plain = c == 'n' ? "\n" : c == 't' ? "\t" : c == 'r' ? "\r" : NULL;
    if (plain)
        str_add(out, plain);
    else
        str_add_n(out, &c, 1);
}

/* A text from its quote on; where two are joined, the quotes between them go. */
static const char *spell_text(const char *at, struct str *out)
{
    char quote = *at++;
    if (out->n >= 2 && memcmp(out->text + out->n - 2, "'+", 2) == 0)
        out->n -= 2;
    else
        str_add(out, "'");
    for (; *at && *at != quote; at++) {
        if (*at == '\\' && at[1])
            add_escaped(out, *++at);
        else
            str_add_n(out, at, 1);
    }
    str_add(out, "'");
    return *at ? at + 1 : at;
}

/* ['name'] as .name; NULL where it is no such thing. */
static const char *spell_member(const char *at, struct str *out)
{
    const char *p = at + 1;
    while (is_space(*p))
        p++;
    char quote = *p++;
    size_t n = quote == '\'' || quote == '"' ? strspn(p, "abcdefghijklmnopqrstuvwxyz_") : 0;
    if (n == 0 || p[n] != quote)
        return NULL;
    const char *name = p;
    for (p += n + 1; is_space(*p); p++)
        ;
    if (*p != ']')
        return NULL;
    str_add(out, ".");
    str_add_n(out, name, n);
    return p + 1;
}

static void spell_inside(const char *at, const char *end, struct str *out)
{
    static const char strip[] = ".strip()";
    while (at < end && out->n < SIZE_MAX / 2) {
        const char *member = *at == '[' ? spell_member(at, out) : NULL;
        if (member) {
            at = member;
        } else if (*at == '\'' || *at == '"') {
            at = spell_text(at, out);
        } else if (strncmp(at, strip, sizeof(strip) - 1) == 0) {
            str_add(out, "|trim");
            at += sizeof(strip) - 1;
        } else {
            if (!is_space(*at))
                str_add_n(out, at, 1);
            at++;
        }
    }
}

/* The mark that ends a tag, beyond texts in it; NULL: none. */
static const char *tag_end(const char *at, const char *mark)
{
    char quote = 0;
    for (; *at; at++) {
        if (quote && *at == '\\' && at[1])
            at++;
        else if (quote && *at == quote)
            quote = 0;
        else if (!quote && mark[0] != '#' && (*at == '\'' || *at == '"'))
            quote = *at;
        else if (!quote && strncmp(at, mark, 2) == 0)
            return at;
    }
    return NULL;
}

/* Text between two tags, as far as it is kept; `before` and `next` are the characters of the marks
 * around it: '%', '{' or '#', and 0 at the ends. */
struct between {
    const char *start, *end;
    char before, next;
    int strips_left, strips_right;
};

static void spell_between(struct between b, struct str *out)
{
    if ((b.before == '%' || b.before == '#') && b.start < b.end && *b.start == '\n')
        b.start++;
    while (b.strips_left && b.start < b.end && is_space(*b.start))
        b.start++;
    while (b.strips_right && b.end > b.start && is_space(b.end[-1]))
        b.end--;
    if ((b.next == '%' || b.next == '#') && !b.strips_right) {
        const char *p = b.end;
        while (p > b.start && (p[-1] == ' ' || p[-1] == '\t'))
            p--;
        if (p == b.start ? b.before == 0 || b.before == '%' : p[-1] == '\n')
            b.end = p;
    }
    if (b.next == 0 && b.end > b.start && b.end[-1] == '\n')
        b.end--;
    if (b.start == b.end)
        return;
    str_add(out, "{{'");
    str_add_n(out, b.start, (size_t)(b.end - b.start));
    str_add(out, "'}}");
}

/* Outputs in a row are one. */
static void join_outputs(struct str *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n;) {
        if (s->n - i >= 4 && memcmp(s->text + i, "}}{{", 4) == 0) {
            i += 4;
            int texts = n > 0 && s->text[n - 1] == '\'' && i < s->n && s->text[i] == '\'';
            if (texts) { /* one text */
                n--;
                i++;
            } else {
                s->text[n++] = '+';
            }
        } else {
            s->text[n++] = s->text[i++];
        }
    }
    s->n = n;
    if (s->text)
        s->text[n] = '\0';
}

/* What stands between the marks of a tag of a kind: '%', '{' or '#'. */
static void spell_tag(char kind, const char *at, const char *end, struct str *out)
{
    static const char *const marks[] = {"{%generation%}", "{%endgeneration%}"};
    size_t first = out->n;
    if (kind == '#')
        return;
    str_add(out, kind == '%' ? "{%" : "{{");
    spell_inside(at, end, out);
    str_add(out, kind == '%' ? "%}" : "}}");
    for (size_t i = 0; i < ARRAY_LEN(marks) && !out->failed; i++) {
        if (strcmp(out->text + first, marks[i]) == 0) { /* they show nothing */
            out->n = first;
            out->text[first] = '\0';
        }
    }
}

enum status chat_spell(const char *jinja, struct str *out)
{
    struct between b = {.start = jinja};
    for (const char *at = jinja; *at && !out->failed;) {
        if (at[0] != '{' || !at[1] || !strchr("%{#", at[1])) {
            at++;
            continue;
        }
        const char *mark = at[1] == '%' ? "%}" : at[1] == '{' ? "}}" : "#}";
        const char *close = tag_end(at + 2, mark);
        if (!close)
            break;
        b.end = at;
        b.next = at[1];
        b.strips_right = at[2] == '-';
        spell_between(b, out);
        const char *inside = at + 2 + b.strips_right;
        int strips = close > inside && close[-1] == '-';
        spell_tag(at[1], inside, close - strips, out);
        b = (struct between){.start = close + 2, .before = at[1], .strips_left = strips};
        at = close + 2;
    }
    b.end = b.start + strlen(b.start);
    spell_between(b, out);
    TRY(str_status(out));
    join_outputs(out);
    return OK;
}

/* ---- families -------------------------------------------------------------------------------- */

static int has_structure(const char *spelled, const char *structure)
{
    static const char separator[] = "\n--\n";
    char fragment[512];
    for (const char *at = structure; at;) {
        const char *end = strstr(at, separator);
        size_t n = end ? (size_t)(end - at) : strlen(at);
        int wanted = *at != '!';
        BUG_ON(n >= sizeof(fragment));
        memcpy(fragment, at + !wanted, n - (size_t)!wanted);
        fragment[n - (size_t)!wanted] = '\0';
        if ((strstr(spelled, fragment) != NULL) != wanted)
            return 0;
        at = end ? end + sizeof(separator) - 1 : NULL;
    }
    return 1;
}

/* What stands between two pieces of the spelled template; 0 where it does not, or is computed. */
static int find_between(const char *spelled, const char *before, const char *after, struct str *out)
{
    for (const char *at = strstr(spelled, before); at; at = strstr(at + 1, before)) {
        const char *text = at + strlen(before), *end = strstr(text, after);
        if (!end || memchr(text, '\'', (size_t)(end - text)))
            continue;
        str_add_n(out, text, (size_t)(end - text));
        return 1;
    }
    return 0;
}

static void take_details(const char *spelled, struct chat_template *c)
{
    const struct chat_family *f = c->family;
    struct str date = {0};
    c->has_bos = f->may_have_bos && strstr(spelled, "{{bos_token") != NULL;
    if (f->default_system)
        c->has_default = find_between(spelled, f->default_system, f->turns[CHAT_SYSTEM].end, &c->default_system);
    if (f->system_lead && find_between(spelled, "date_string='", "'", &date)) {
        str_clear(&c->date);
        str_add_n(&c->date, date.text, date.n);
    }
    str_release(&date);
}

const struct chat_family *chat_recognise(const char *jinja, struct chat_template *c)
{
    struct str spelled = {0};
    c->family = NULL;
    if (chat_spell(jinja, &spelled) == OK) {
        for (const struct chat_family *f = chat_families; f->name && !c->family; f++) {
            if (has_structure(str_text(&spelled), f->structure))
                c->family = f;
        }
        if (c->family)
            take_details(str_text(&spelled), c);
    }
    str_release(&spelled);
    return c->family;
}
