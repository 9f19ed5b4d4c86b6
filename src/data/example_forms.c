/* example_forms.c: records into texts. */
#include <string.h>

#include "data/example.h"

/* ---- members --------------------------------------------------------------------------------- */

const json_t *example_member(const json_t *record, const char *given, const char *usual,
                             const char *also)
{
    if (given)
        return json_object_get(record, given);
    const json_t *value = json_object_get(record, usual);
    return value || !also ? value : json_object_get(record, also);
}

/* Text of a member that has to be there. */
static enum status need_text(const json_t *record, const char *given, const char *usual,
                             const json_t **out)
{
    *out = example_member(record, given, usual, NULL);
    if (!*out)
        return FAIL(ERR_DATA, "has no \"%s\"", given ? given : usual);
    if (!json_is_string(*out))
        return FAIL(ERR_DATA, "\"%s\" is not a string", given ? given : usual);
    return OK;
}

/* Text of one that may be missing, null or empty: NULL then. */
static enum status maybe_text(const json_t *record, const char *given, const char *usual,
                              const json_t **out)
{
    *out = example_member(record, given, usual, NULL);
    if (!*out || json_is_null(*out)) {
        *out = NULL;
        return OK;
    }
    if (!json_is_string(*out))
        return FAIL(ERR_DATA, "\"%s\" is not a string", given ? given : usual);
    if (json_string_length(*out) == 0)
        *out = NULL;
    return OK;
}

static void add_string(struct str *out, const json_t *text)
{
    if (text)
        str_add_n(out, json_string_value(text), json_string_length(text));
}

/* What is added from `start` on is learnt. */
static enum status learn_from(struct example *x, size_t start)
{
    const struct text_span span = {start, x->text.text.n};
    TRY(str_status(&x->text.text));
    return span.end > span.start ? vec_push(&x->text.spans, span) : OK;
}

/* ---- conversations --------------------------------------------------------------------------- */

static enum status read_role(const json_t *message, const struct example_fields *f,
                             enum chat_role *out)
{
    static const struct {
        const char *name;
        enum chat_role role;
    } known[] = {
        {"system", CHAT_SYSTEM}, {"user", CHAT_USER},        {"human", CHAT_USER},
        {"prompter", CHAT_USER}, {"developer", CHAT_SYSTEM}, {"assistant", CHAT_ASSISTANT},
        {"gpt", CHAT_ASSISTANT}, {"model", CHAT_ASSISTANT},  {"chatgpt", CHAT_ASSISTANT},
        {"bot", CHAT_ASSISTANT},
    };
    const json_t *value = example_member(message, f->role, "role", "from");
    const char *name = json_string_value(value);
    if (!name)
        return FAIL(ERR_DATA, "has no role (\"%s\") that is a string",
                    f->role ? f->role : "role\" or \"from");
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (strcmp(known[i].name, name) == 0) {
            *out = known[i].role;
            return OK;
        }
    }
    return FAIL(ERR_DATA,
                "is the \"%.40s\"'s: known are system, user (human) and assistant (gpt, model)",
                name);
}

/* A list of parts of which all are text: they are joined. */
static enum status join_parts(struct example *x, const json_t *parts)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text))
            return FAIL(ERR_DATA, "part %zu of its content is not text", i);
        add_string(&x->joined, text);
    }
    return str_status(&x->joined);
}

/* OpenAI's "weight": 0, Axolotl's "train": false. */
static int is_masked(const json_t *message)
{
    const json_t *weight = json_object_get(message, "weight");
    return (json_is_number(weight) && json_number_value(weight) == 0) ||
           json_is_false(json_object_get(message, "train")) ||
           json_is_false(json_object_get(message, "training"));
}

static enum status read_message(struct example *x, const json_t *message,
                                const struct example_fields *f)
{
    struct chat_message m = {.is_masked = is_masked(message)};
    const json_t *content = example_member(message, f->content, "content", "value");
    TRY(read_role(message, f, &m.role));
    if (json_is_string(content)) {
        m.text = json_string_value(content);
        m.n = json_string_length(content);
    } else if (json_is_array(content)) {
        size_t start = x->joined.n;
        TRY(join_parts(x, content));
        m.n = x->joined.n - start; /* its text is known once nothing moves any more */
    } else {
        return FAIL(ERR_DATA, "has no content that is a string");
    }
    return vec_push(&x->messages, m);
}

static enum status read_messages(struct example *x, const json_t *list,
                                 const struct example_fields *f)
{
    if (!json_is_array(list))
        return FAIL(ERR_DATA, "its messages are not a list");
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        enum status status = read_message(x, json_array_get(list, i), f);
        if (status != OK)
            return status_prefix(status, "message %zu", i);
    }
    return OK;
}

static enum status render(struct example *x, const struct example_options *o)
{
    const char *joined = str_text(&x->joined);
    if (!o->chat)
        return FAIL(ERR_CONFIG, "%s", o->chat_missing ? o->chat_missing : "no chat template");
    for (size_t i = 0; i < x->messages.n; i++) {
        struct chat_message *m = &x->messages.items[i];
        if (!m->text) {
            m->text = joined;
            joined += m->n;
        }
    }
    return chat_render(o->chat, x->messages.items, x->messages.n, 0, &x->text);
}

static enum status read_chat(struct example *x, const json_t *record,
                             const struct example_options *o)
{
    const struct example_fields *f = &o->fields;
    const json_t *list = example_member(record, f->messages, "messages", "conversations");
    const json_t *system;
    if (!list)
        return FAIL(ERR_DATA, "has no \"%s\"",
                    f->messages ? f->messages : "messages\" or \"conversations");
    TRY(maybe_text(record, f->system, "system", &system));
    if (system) {
        const struct chat_message m = {.role = CHAT_SYSTEM,
                                       .text = json_string_value(system),
                                       .n = json_string_length(system)};
        TRY(vec_push(&x->messages, m));
    }
    TRY(read_messages(x, list, f));
    return render(x, o);
}

/* ---- instructions ---------------------------------------------------------------------------- */

struct instruction {
    const json_t *instruction, *input, *output, *system;
};

static enum status read_instruction(const json_t *record, const struct example_fields *f,
                                    struct instruction *out)
{
    TRY(need_text(record, f->instruction, "instruction", &out->instruction));
    TRY(maybe_text(record, f->input, "input", &out->input));
    TRY(need_text(record, f->output, "output", &out->output));
    return maybe_text(record, f->system, "system", &out->system);
}

/* The prompt of Stanford's Alpaca. */
static enum status read_alpaca(struct example *x, const json_t *record,
                               const struct example_options *o)
{
    struct instruction in;
    struct str *out = &x->text.text;
    TRY(read_instruction(record, &o->fields, &in));
    if (in.system)
        add_string(out, in.system);
    else
        str_addf(out,
                 "Below is an instruction that describes a task%s. Write a response that "
                 "appropriately completes the request.",
                 in.input ? ", paired with an input that provides further context" : "");
    str_add(out, "\n\n### Instruction:\n");
    add_string(out, in.instruction);
    str_add(out, in.input ? "\n\n### Input:\n" : "");
    add_string(out, in.input);
    str_add(out, "\n\n### Response:\n");
    size_t start = out->n;
    add_string(out, in.output);
    x->is_document = 1;
    return learn_from(x, start);
}

static enum status add_message(struct example *x, enum chat_role role, const json_t *text)
{
    const struct chat_message m = {
        .role = role, .text = json_string_value(text), .n = json_string_length(text)};
    return vec_push(&x->messages, m);
}

/* The input goes behind the instruction, in a line of its own. */
static enum status read_alpaca_chat(struct example *x, const json_t *record,
                                    const struct example_options *o)
{
    struct instruction in;
    TRY(read_instruction(record, &o->fields, &in));
    if (in.system)
        TRY(add_message(x, CHAT_SYSTEM, in.system));
    add_string(&x->joined, in.instruction);
    str_add(&x->joined, in.input ? "\n" : "");
    add_string(&x->joined, in.input);
    TRY(str_status(&x->joined));
    const struct chat_message question = {.role = CHAT_USER, .n = x->joined.n};
    TRY(vec_push(&x->messages, question));
    TRY(add_message(x, CHAT_ASSISTANT, in.output));
    return render(x, o);
}

/* ---- prompts and segments -------------------------------------------------------------------- */

static enum status read_prompt_completion(struct example *x, const json_t *record,
                                          const struct example_options *o)
{
    const struct example_fields *f = &o->fields;
    const json_t *prompt = example_member(record, f->prompt, "prompt", NULL), *completion;
    if (json_is_array(prompt)) {
        TRY(read_messages(x, prompt, f));
        TRY(read_messages(x, example_member(record, f->completion, "completion", NULL), f));
        return render(x, o);
    }
    TRY(need_text(record, f->prompt, "prompt", &prompt));
    TRY(need_text(record, f->completion, "completion", &completion));
    add_string(&x->text.text, prompt);
    size_t start = x->text.text.n;
    add_string(&x->text.text, completion);
    x->is_document = 1;
    return learn_from(x, start);
}

/* A list of messages, one message, or a text, which is `role`'s. */
static enum status read_turns(struct example *x, const json_t *turns, enum chat_role role,
                              const struct example_fields *f)
{
    if (json_is_string(turns))
        return add_message(x, role, turns);
    return json_is_object(turns) ? read_message(x, turns, f) : read_messages(x, turns, f);
}

/* How many messages two lists begin with in common. */
static size_t count_common(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) &&
           json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* What comes before the answers is not learnt, whoever says it. */
static enum status read_chat_answer(struct example *x, const json_t *record, const json_t *prompt,
                                    const char *which, const struct example_options *o)
{
    const json_t *answer = json_object_get(record, which), *system;
    size_t n_prompt =
        count_common(json_object_get(record, "chosen"), json_object_get(record, "rejected"));
    TRY(maybe_text(record, o->fields.system, "system", &system));
    if (system)
        TRY(add_message(x, CHAT_SYSTEM, system));
    if (prompt)
        TRY(read_turns(x, prompt, CHAT_USER, &o->fields));
    n_prompt += x->messages.n;
    TRY(read_turns(x, answer, CHAT_ASSISTANT, &o->fields));
    for (size_t i = 0; i < x->messages.n && i < n_prompt; i++)
        x->messages.items[i].is_masked = 1;
    return render(x, o);
}

/* Texts are learnt as completions are; with messages anywhere it is a conversation. */
static enum status read_answer(struct example *x, const json_t *record,
                               const struct example_options *o, const char *which)
{
    const struct example_fields *f = &o->fields;
    const json_t *answer = json_object_get(record, which), *text;
    const json_t *prompt = example_member(record, f->prompt, "prompt", NULL);
    if (!json_object_get(record, "chosen") || !json_object_get(record, "rejected"))
        return FAIL(ERR_DATA,
                    "has no \"%s\": with rl: dpo records have a prompt, chosen and "
                    "rejected",
                    json_object_get(record, "chosen") ? "rejected" : "chosen");
    if (!prompt)
        prompt = example_member(record, f->messages, "messages", "conversations");
    if (!json_is_string(answer) || (prompt && !json_is_string(prompt)))
        return read_chat_answer(x, record, prompt, which, o);
    TRY(need_text(record, f->prompt, "prompt", &text));
    add_string(&x->text.text, text);
    size_t start = x->text.text.n;
    add_string(&x->text.text, answer);
    x->is_document = 1;
    return learn_from(x, start);
}

static enum status read_segments(struct example *x, const json_t *record)
{
    const json_t *segments = json_object_get(record, "segments");
    if (!json_is_array(segments))
        return FAIL(ERR_DATA, "has no \"segments\" that are a list");
    for (size_t i = 0; i < json_array_size(segments); i++) {
        const json_t *segment = json_array_get(segments, i);
        const json_t *text = json_object_get(segment, "text"),
                     *label = json_object_get(segment, "label");
        size_t start = x->text.text.n;
        if (!json_is_string(text) || !json_is_boolean(label))
            return FAIL(ERR_DATA, "segment %zu is not {\"label\": true, \"text\": \"...\"}", i);
        add_string(&x->text.text, text);
        TRY(vec_push(&x->cuts, start));
        if (json_is_true(label))
            TRY(learn_from(x, start));
    }
    return str_status(&x->text.text);
}

static enum status read_text(struct example *x, const json_t *record,
                             const struct example_options *o)
{
    const json_t *text;
    TRY(need_text(record, o->fields.text, "text", &text));
    add_string(&x->text.text, text);
    x->is_document = 1;
    return learn_from(x, 0);
}

enum status example_text(struct example *x, const json_t *record, const struct example_options *o,
                         enum example_form form)
{
    switch (form) {
    case EXAMPLE_CHAT:
        return read_chat(x, record, o);
    case EXAMPLE_ALPACA:
        return read_alpaca(x, record, o);
    case EXAMPLE_ALPACA_CHAT:
        return read_alpaca_chat(x, record, o);
    case EXAMPLE_PROMPT_COMPLETION:
        return read_prompt_completion(x, record, o);
    case EXAMPLE_INPUT_OUTPUT:
        return read_segments(x, record);
    case EXAMPLE_TEXT:
        return read_text(x, record, o);
    case EXAMPLE_CHOSEN:
        return read_answer(x, record, o, "chosen");
    case EXAMPLE_REJECTED:
        return read_answer(x, record, o, "rejected");
    case EXAMPLE_AUTO:
    case EXAMPLE_IDS:
        break;
    }
    return FAIL(ERR_INTERNAL, "a record without a text");
}
