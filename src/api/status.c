/* status.c: statuses and errors as the public header names them. */
#include "api/api_internal.h"
#include "base/alloc.h"
#include "base/json_text.h"

/* By name, so that the order of status.def is free. */
static const enum snug_status public_names[STATUS_COUNT] = {
    [OK] = SNUG_OK,
    [ERR_FAILED] = SNUG_ERR_FAILED,
    [ERR_INTERNAL] = SNUG_ERR_INTERNAL,
    [ERR_IO] = SNUG_ERR_IO,
    [ERR_MEMORY] = SNUG_ERR_MEMORY,
    [ERR_SHAPE] = SNUG_ERR_SHAPE,
    [ERR_PROGRAM] = SNUG_ERR_PROGRAM,
    [ERR_NUMERIC] = SNUG_ERR_NUMERIC,
    [ERR_USAGE] = SNUG_ERR_USAGE,
    [ERR_CONFIG] = SNUG_ERR_CONFIG,
    [ERR_UNSUPPORTED] = SNUG_ERR_UNSUPPORTED,
    [ERR_FIT] = SNUG_ERR_FIT,
    [ERR_DEVICE_MEMORY] = SNUG_ERR_DEVICE_MEMORY,
    [ERR_DATA] = SNUG_ERR_DATA,
    [ERR_CHECKPOINT] = SNUG_ERR_CHECKPOINT,
    [ERR_INTERRUPTED] = SNUG_ERR_INTERRUPTED,
    [ERR_TERMINATED] = SNUG_ERR_TERMINATED,
    [ERR_HANGUP] = SNUG_ERR_HANGUP,
};

/* A row added to status.def must be named here and in snug.h too. */
_Static_assert(STATUS_COUNT == SNUG_ERR_HANGUP + 1, "snug.h lacks a status");

enum snug_status public_status(enum status s)
{
    return public_names[s];
}

enum status internal_status(enum snug_status s)
{
    for (int i = 0; i < STATUS_COUNT; i++) {
        if (public_names[i] == s)
            return (enum status)i;
    }
    return ERR_FAILED;
}

int snug_exit_code(enum snug_status status)
{
    return status_exit_code(internal_status(status));
}

const char *snug_status_name(enum snug_status status)
{
    return status_name(internal_status(status));
}

const char *snug_error_message(void)
{
    return status_message();
}

const char *snug_error_place(void)
{
    return status_place();
}

json_t *error_object(enum status status)
{
    const char *message = status_message();
    json_t *text = json_string(message);
    if (!text) /* a path in it may be no UTF-8 */
        text = json_string(status_meaning(status));
    return json_pack("{s:s, s:o, s:i}", "status", status_name(status), "message", text, "exit_code",
                     status_exit_code(status));
}

enum snug_status snug_error_json(enum snug_status status, char **text)
{
    struct str s = {0};
    json_t *root = json_pack("{s:o}", "error", error_object(internal_status(status)));
    return hand_out(&s, json_text_take(root, JSON_INDENT(2), &s), text);
}

enum snug_status hand_out(struct str *s, enum status status, char **text)
{
    *text = NULL;
    if (status == OK) {
        str_add_n(s, "", 0); /* an empty text is a text too */
        *text = str_take(s);
        if (!*text)
            status = FAIL(ERR_MEMORY, "out of memory for a text");
    }
    str_release(s);
    return public_status(status);
}

const char *snug_version(void)
{
    return SNUG_VERSION;
}

void snug_free(void *text)
{
    mem_free(text);
}
