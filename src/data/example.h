/* example.h: a record of a fine-tuning dataset as a text, and which parts of it are learnt.
 *
 *     chat               {"messages": [{"role": "user", "content": "..."}, ...]}, or
 *                        {"conversations": [{"from": "human", "value": "..."}, ...]}
 *     alpaca             {"instruction": "...", "input": "...", "output": "..."}, as Alpaca's
 * prompt alpaca_chat        the same as a question and its answer, in the chat template
 *     prompt_completion  {"prompt": "...", "completion": "..."}, both texts or both messages
 *     input_output       {"segments": [{"label": true, "text": "..."}, ...]}
 *     text               {"text": "..."}
 *     ids                {"input_ids": [...], "labels": [...]}
 *     chosen, rejected   {"prompt": .., "chosen": .., "rejected": ..}: texts, messages, or both
 *                        answers with the messages before them; "messages" may be the prompt
 *
 * Learnt is what an assistant says, with the token that ends it; outputs, completions and segments
 * with a true label; all of a text.
 */
#ifndef SNUG_DATA_EXAMPLE_H
#define SNUG_DATA_EXAMPLE_H

#include <jansson.h>

#include "data/chat.h"

#ifdef __cplusplus
extern "C" {
#endif

enum example_form {
    EXAMPLE_AUTO, /* by the members of each record */
    EXAMPLE_CHAT,
    EXAMPLE_ALPACA,
    EXAMPLE_ALPACA_CHAT,
    EXAMPLE_PROMPT_COMPLETION,
    EXAMPLE_INPUT_OUTPUT,
    EXAMPLE_TEXT,
    EXAMPLE_IDS,
    EXAMPLE_CHOSEN, /* of a preference: the prompt with the one answer, and with the other */
    EXAMPLE_REJECTED,
};

/* Names of members where they are not the usual ones; NULL: they are. */
struct example_fields {
    const char *text, *messages, *role, *content;
    const char *instruction, *input, *output, *system, *prompt, *completion;
};

struct example_options {
    enum example_form form;
    struct example_fields fields;
    const struct chat_template *chat; /* for forms that need one; NULL: there is none, */
    const char *chat_missing;         /* for this reason */
    int train_on_inputs;              /* everything is learnt */
    int64_t max_tokens;               /* of an example; longer ones are cut, */
    int drops_long;                   /* or left out */
    int64_t max_records;              /* read of each dataset; 0: all */
    int pairs;                        /* records are preferences: each gives two examples */
};

/* One record, while it is made into tokens. */
struct example {
    struct spanned_text text;
    VEC(size_t) cuts; /* places in the text where tokens end and begin anew */
    int is_document;  /* begins and ends as documents do; the end is learnt */
    VEC(struct chat_message) messages;
    struct str joined;             /* texts of messages that came in parts */
    struct token_list ids, labels; /* in the end */
};
void example_release(struct example *x);

/* The form of a record; EXAMPLE_AUTO for one that is none of them. */
enum example_form example_form_of(const json_t *record, const struct example_fields *f);

/* Fills ids and labels (LABEL_IGNORED where nothing is learnt; the first never is). ERR_DATA says
 * what is wrong with the record. */
enum status example_make(struct example *x, const json_t *record, const struct example_options *o,
                         const struct tokenizer *t, struct encoder *e) MUST_CHECK;

/* ---- inside data/ ---------------------------------------------------------------------------- */

/* example_forms.c: the text of a record in one of the forms but ids. */
enum status example_text(struct example *x, const json_t *record, const struct example_options *o,
                         enum example_form form) MUST_CHECK;
/* A member under the name given, or under one of the usual ones. */
const json_t *example_member(const json_t *record, const char *given, const char *usual,
                             const char *also);

#ifdef __cplusplus
}
#endif
#endif
