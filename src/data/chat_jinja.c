/* chat_jinja.c: a family as a Jinja template, for programs that render conversations themselves. It
 * is written by the table that chat_render.c goes by, so that both give the same text. */
#include <stdbool.h>

#include "data/chat.h"

/* ---- expressions ----------------------------------------------------------------------------- */

static void add_letter(char letter, struct str *out)
{
    if (letter == '\n')
        str_add(out, "\\n");
    else if (letter == '\'' || letter == '\\')
        str_addf(out, "\\%c", letter);
    else
        str_add_n(out, &letter, 1);
}

/* Words of the table as a sum of texts and variables, with a "+" behind each. */
static void add_words(const char *words, struct str *out)
{
    static const char *const marks[] = {"bos_token", "eos_token", "date_string"};
    bool is_quoted = false;
    for (const char *at = words; at && *at; at++) {
        bool is_mark = *at >= '\1' && *at <= '\3';
        if (is_quoted == is_mark)
            str_add(out, is_quoted ? "' + " : "'");
        is_quoted = !is_mark;
        if (is_mark)
            str_addf(out, "%s + ", marks[*at - '\1']);
        else
            add_letter(*at, out);
    }
    if (is_quoted)
        str_add(out, "' + ");
}

static void add_output(const char *words, struct str *out)
{
    if (!words || !*words)
        return;
    str_add(out, "{{ ");
    add_words(words, out);
    str_add(out, "'' }}");
}

/* What stands around a message. */
static void add_front(const struct chat_turn *t, struct str *out)
{
    str_add(out, "{{ ");
    add_words(t->before, out);
    add_words(t->lead, out);
}

static void add_back(const struct chat_turn *t, struct str *out)
{
    str_add(out, " + ");
    add_words(t->end, out);
    add_words(t->after, out);
    str_add(out, "'' }}");
}

/* A message, with the system message in front of it where that goes into this one. */
static void add_content(const struct chat_family *f, enum chat_role role, struct str *out)
{
    bool joins =
             role == CHAT_USER && (f->system == CHAT_SYSTEM_FIRST || f->system == CHAT_SYSTEM_LAST),
         trims = (f->trims >> role & 1) != 0;
    const char *trim = trims ? " | trim" : "";
    if (joins) {
        str_addf(out, "((");
        add_words(f->system_before, out);
        str_add(out, "system_message + ");
        add_words(f->system_after, out);
        str_addf(out, "'' if loop.%s and system_message is defined else '') + ",
                 f->system == CHAT_SYSTEM_FIRST ? "first" : "last");
    }
    if (joins && f->joins_first)
        str_addf(out, "message['content'])%s", trim);
    else
        str_addf(out, "(message['content']%s)%s", trim, joins ? ")" : "");
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Thoughts are taken out of an answer and written again in front of the last one. */
static void add_answer(const struct chat_turn *t, struct str *out)
{
    str_add(out, "{% set content = message['content'] %}{% set thoughts = '' %}"
                 "{% if '</think>' in content %}"
                 "{% set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
                 ".strip('\\n') %}"
                 "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
                 "{% if loop.index0 > ns.last_question and (loop.last or thoughts) %}");
    add_front(t, out);
    str_add(out, "'<think>\\n' + thoughts + '\\n</think>\\n\\n' + content.lstrip('\\n')");
    add_back(t, out);
    str_add(out, "{% else %}");
    add_front(t, out);
    str_add(out, "content");
    add_back(t, out);
    str_add(out, "{% endif %}");
}

static void add_turn(const struct chat_family *f, enum chat_role role, struct str *out)
{
    const struct chat_turn *t = &f->turns[role];
    if (role == CHAT_ASSISTANT && f->thinks) {
        add_answer(t, out);
        return;
    }
    add_front(t, out);
    if (role == CHAT_SYSTEM)
        add_words(f->system_lead, out);
    add_content(f, role, out);
    add_back(t, out);
}

static void add_loop(const struct chat_family *f, struct str *out)
{
    str_add(out, "{% for message in loop_messages %}");
    if (f->alternates)
        str_add(out, "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                     "{{ raise_exception('user and assistant take turns, the user first') }}"
                     "{% endif %}");
    str_add(out, "{% if message['role'] == 'user' %}");
    add_turn(f, CHAT_USER, out);
    str_add(out, "{% elif message['role'] == 'assistant' %}");
    add_turn(f, CHAT_ASSISTANT, out);
    if (f->system == CHAT_SYSTEM_TURN) {
        str_add(out, "{% elif message['role'] == 'system' %}");
        add_turn(f, CHAT_SYSTEM, out);
    }
    str_add(out, "{% endif %}{% endfor %}");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Takes a first system message out of the others, where it has no turn of its own. */
static void add_split(const struct chat_family *f, struct str *out)
{
    if (f->system == CHAT_SYSTEM_TURN) {
        str_add(out, "{% set loop_messages = messages %}");
        return;
    }
    str_add(out, "{% if messages[0]['role'] == 'system' %}");
    if (f->system == CHAT_SYSTEM_NONE)
        str_add(out, "{{ raise_exception('there is no place for a system message') }}");
    str_add(out, "{% set system_message = messages[0]['content'] %}"
                 "{% set loop_messages = messages[1:] %}"
                 "{% else %}{% set loop_messages = messages %}{% endif %}");
}

/* A system message that is always there. */
static void add_lead(const struct chat_family *f, struct str *out)
{
    const struct chat_turn *t = &f->turns[CHAT_SYSTEM];
    if (!f->system_lead)
        return;
    str_add(out, "{% if date_string is not defined %}{% set date_string = '26 Jul 2024' %}"
                 "{% endif %}{% if messages[0]['role'] != 'system' %}");
    add_front(t, out);
    add_words(f->system_lead, out);
    str_add(out, "''");
    add_back(t, out);
    str_add(out, "{% endif %}");
}

enum status chat_family_jinja(const struct chat_family *f, struct str *out)
{
    add_split(f, out);
    add_output(f->begin, out);
    add_lead(f, out);
    if (f->thinks)
        str_add(out, "{% set ns = namespace(last_question=messages | length - 1, searching=true) %}"
                     "{% for message in messages[::-1] %}"
                     "{% if ns.searching and message['role'] == 'user' %}"
                     "{% set ns.searching = false %}"
                     "{% set ns.last_question = messages | length - 1 - loop.index0 %}"
                     "{% endif %}{% endfor %}");
    add_loop(f, out);
    str_add(out, "{% if add_generation_prompt %}");
    add_output(f->turns[CHAT_ASSISTANT].before, out);
    if (f->tail) {
        str_add(out, "{% else %}");
        add_output(f->tail, out);
    }
    str_add(out, "{% endif %}");
    return str_status(out);
}
