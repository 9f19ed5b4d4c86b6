/* chat.h: conversations as the text that a model was, or is to be, trained on.
 *
 * A tokenizer's chat_template is a Jinja program. Snug runs no Jinja: it recognises by its
 * structure which of the families in chat_families.c a template belongs to, and renders that family
 * itself, as the template would. A template that is none of them is refused, with how to name one.
 *
 *     struct chat_template *c;
 *     TRY(chat_template_open(&c, NULL, "models/qwen", tokenizer));
 *     TRY_GOTO(chat_render(c, messages, n, 0, &text), out);
 *     out: chat_template_free(c);
 */
#ifndef SNUG_DATA_CHAT_H
#define SNUG_DATA_CHAT_H

#include "base/str.h"
#include "base/vec.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_N_ROLES };

struct chat_message {
    enum chat_role role;
    const char *text; /* may hold any byte */
    size_t n;
    int is_masked; /* an assistant's that is not to be learnt */
};

/* A text, and which bytes of it a model would write itself: they are what is learnt. */
struct text_span {
    size_t start, end;
};
struct spanned_text {
    struct str text;
    VEC(struct text_span) spans;
};
void spanned_text_clear(struct spanned_text *t); /* keeps the memory */
void spanned_text_release(struct spanned_text *t);

struct chat_template;

/* `family` is a name (chat_family_named) or NULL: the template of the tokenizer, which was opened
 * by `tokenizer_name`. ERR_UNSUPPORTED for a template that is not recognised, ERR_CONFIG where
 * there is none. */
enum status chat_template_open(struct chat_template **out, const char *family,
                               const char *tokenizer_name, const struct tokenizer *t) MUST_CHECK;
/* *jinja (freed by the caller with mem_free) = the text of a tokenizer's template, from the first
 * of the files beside it that has one, which is *path; NULL: there is none. */
enum status chat_template_read(const char *tokenizer_name, char **jinja,
                               struct str *path) MUST_CHECK;
/* The same from the text of a template. */
enum status chat_template_parse(struct chat_template **out, const char *jinja, const char *what,
                                const struct tokenizer *t) MUST_CHECK;
void chat_template_free(struct chat_template *c); /* NULL is fine */

const char *chat_template_name(const struct chat_template *c); /* of its family */
uint64_t chat_template_hash(const struct chat_template *c);    /* of all that it renders with */

/* Adds a conversation to `out`. With `open` the text ends where the assistant's next turn begins.
 * ERR_DATA for roles in an order that the family has no form for. */
enum status chat_render(const struct chat_template *c, const struct chat_message *messages,
                        size_t n, int open, struct spanned_text *out) MUST_CHECK;

struct chat_family;
/* Adds a Jinja template that gives the same text as the family does. */
enum status chat_family_jinja(const struct chat_family *f, struct str *out) MUST_CHECK;

/* What ends the assistant's turn, without the space around it. */
void chat_template_end(const struct chat_template *c, struct str *out);

/* ---- inside data/ ---------------------------------------------------------------------------- */

/* Where a system message goes. */
enum chat_system {
    CHAT_SYSTEM_TURN,  /* a turn of its own, anywhere */
    CHAT_SYSTEM_FIRST, /* into the first message of the user */
    CHAT_SYSTEM_LAST,  /* into the last message, where that is the user's; else nowhere */
    CHAT_SYSTEM_NONE,  /* refused */
};

/* Around a message: `before`, then `lead`, the message, `end` (which the model writes when the turn
 * is its own), `after`. "\1" stands for BOS, "\2" for EOS. */
struct chat_turn {
    const char *before, *lead, *end, *after;
};

struct chat_family {
    const char *name;
    const char *begin; /* in front of it all */
    const char *tail;  /* behind it all, unless it is open */
    struct chat_turn turns[CHAT_N_ROLES];
    enum chat_system system;
    const char *system_before, *system_after; /* around a system message in another */
    /* In front of every system message, "\3" being a date: there always is one then. */
    const char *system_lead;
    unsigned trims;   /* bit r: messages of role r lose the space around them */
    int joins_first;  /* a system message is put into another before that is trimmed */
    int alternates;   /* user and assistant take turns */
    int thinks;       /* a last answer begins with its thoughts, earlier ones lose them (Qwen3) */
    int may_have_bos; /* begins with BOS where the template says so */
    /* What templates have in front of the system message of conversations without one; NULL: they
     * have none. */
    const char *default_system;
    /* What a template of the family has in it once it is spelled as in chat_recognise.c; a list in
     * one string, separated by "\n--\n"; a fragment that begins with '!' is not in it. */
    const char *structure;
};

struct chat_template {
    const struct chat_family *family;
    struct str bos, eos;
    struct str default_system; /* where a conversation has none */
    struct str date;
    int has_default, has_bos;
};

extern const struct chat_family chat_families[]; /* until name == NULL */
const struct chat_family *chat_family_named(const char *name);

/* chat_recognise.c: NULL: none; what the template itself settles goes into `c`. */
const struct chat_family *chat_recognise(const char *jinja, struct chat_template *c);
/* A template in one spelling. */
enum status chat_spell(const char *jinja, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
