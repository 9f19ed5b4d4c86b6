#include "io/budget_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "io/run_folder.h"

#define REQUEST_NAME "BUDGET"
#define ANSWER_NAME  "BUDGET.answer"

enum { MOST_TEXT = 4096 }; /* of either file: nobody's novel is read into memory */

void budget_request_init(struct budget_request *r)
{
    *r = (struct budget_request){
        .device_bytes = BUDGET_SAME, .host_bytes = BUDGET_SAME, .disk_bytes = BUDGET_SAME};
}

void budget_request_release(struct budget_request *r)
{
    str_release(&r->text);
    *r = (struct budget_request){0};
}

/* ---- settings -------------------------------------------------------------------------------- */

enum status budget_request_set(struct budget_request *r, const char *setting)
{
    static const char *const names[] = {"device_memory", "host_memory", "disk_memory"};
    int64_t *const values[] = {&r->device_bytes, &r->host_bytes, &r->disk_bytes};
    const char *equals = strchr(setting, '=');
    for (size_t i = 0; equals && i < ARRAY_LEN(names); i++) {
        size_t n = (size_t)(equals - setting);
        if (n != strlen(names[i]) || memcmp(setting, names[i], n) != 0)
            continue;
        if (strcmp(equals + 1, "auto") == 0)
            *values[i] = BUDGET_OPEN;
        else if (!parse_bytes(equals + 1, values[i]) || *values[i] < 0)
            return FAIL(ERR_USAGE, "%s: expected a size such as 9GiB, or auto", setting);
        str_addf(&r->text, "%s%s", r->text.n ? " " : "", setting);
        return str_status(&r->text);
    }
    return FAIL(ERR_USAGE,
                "'%s' is no budget: give device_memory=9GiB, host_memory=48GiB or "
                "disk_memory=500GiB, or auto",
                setting);
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum status path_of(struct str *out, const char *folder, const char *name)
{
    str_addf(out, "%s/%s", folder, name);
    return str_status(out);
}

/* The text of a plain file of that name, which is then removed; NULL: there is none. */
static char *take_file(const char *folder, const char *name)
{
    struct str path = {0};
    struct stat st;
    char *text = NULL;
    size_t n;
    if (path_of(&path, folder, name) == OK && lstat(path.text, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size <= MOST_TEXT) {
        if (file_read(path.text, &text, &n) != OK)
            text = NULL;
        if (unlink(path.text) != 0 && text)
            log_warn("%s: cannot remove: %s", path.text, strerror(errno));
    }
    str_release(&path);
    return text;
}

static enum status put_file(const char *folder, const char *name, const struct str *text)
{
    struct str path = {0};
    TRY(str_status(text));
    enum status status = path_of(&path, folder, name);
    if (status == OK)
        status = file_write_atomic(path.text, text->text, text->n);
    str_release(&path);
    return status;
}

/* Cuts a line off; NULL: there is none. */
static char *next_line(char **rest)
{
    char *line = *rest, *end = line ? strchr(line, '\n') : NULL;
    if (!end)
        return NULL;
    *end = '\0';
    *rest = end + 1;
    return line;
}

/* ---- asking ---------------------------------------------------------------------------------- */

enum status budget_request_send(const char *folder, struct budget_request *r)
{
    struct str text = {0};
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)snprintf(r->id, sizeof(r->id), "%lld.%09ld-%ld", (long long)now.tv_sec, now.tv_nsec,
                   (long)getpid());
    str_addf(&text, "%s\n", r->id);
    for (const char *c = r->text.text; *c; c++)
        str_addf(&text, "%c", *c == ' ' ? '\n' : *c);
    str_add(&text, "\n");
    enum status status = put_file(folder, REQUEST_NAME, &text);
    str_release(&text);
    return status;
}

/* *answered: it is the answer to this request. */
static enum status look(const char *folder, const struct budget_request *r, struct str *answer,
                        bool *answered)
{
    char *text = take_file(folder, ANSWER_NAME), *rest = text;
    const char *id = next_line(&rest), *word = next_line(&rest);
    enum status status = OK;
    *answered = word && strcmp(id, r->id) == 0;
    if (*answered && strcmp(word, "changed") != 0)
        status = FAIL(ERR_FIT, "%s", rest);
    else if (*answered)
        str_add(answer, rest);
    mem_free(text);
    return status;
}

enum status budget_request_ask(const char *folder, struct budget_request *r,
                               volatile sig_atomic_t *stop, struct str *answer)
{
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    bool answered = false;
    if (!run_folder_is_busy(folder))
        return FAIL(ERR_USAGE, "%s: no run is at work in this folder", folder);
    TRY(budget_request_send(folder, r));
    while (!answered) {
        bool ended = !run_folder_is_busy(folder);
        TRY(look(folder, r, answer, &answered));
        if (!answered && (ended || (stop && *stop))) {
            mem_free(take_file(folder, REQUEST_NAME));
            return ended ? FAIL(ERR_USAGE, "%s: the run ended before it answered", folder)
                         : FAIL(ERR_INTERRUPTED, "interrupted before the run answered");
        }
        if (!answered)
            (void)nanosleep(&pause, NULL);
    }
    return str_status(answer);
}

/* ---- answering ------------------------------------------------------------------------------- */

static enum status read_request(struct budget_request *r, char *text)
{
    const char *id = next_line(&text), *setting;
    if (!id || strlen(id) >= sizeof(r->id))
        return FAIL(ERR_USAGE, "a request begins with the line of its id");
    (void)snprintf(r->id, sizeof(r->id), "%s", id);
    while ((setting = next_line(&text)))
        TRY(budget_request_set(r, setting));
    return r->text.n ? OK : FAIL(ERR_USAGE, "a request without a budget");
}

bool budget_request_take(const char *folder, struct budget_request *r)
{
    budget_request_init(r);
    char *text = take_file(folder, REQUEST_NAME);
    if (!text)
        return false;
    enum status status = read_request(r, text);
    mem_free(text);
    if (status == OK)
        return true;
    log_warn("%s/" REQUEST_NAME ": %s", folder, status_message());
    budget_request_answer(folder, r, false, status_message());
    budget_request_release(r);
    return false;
}

void budget_request_answer(const char *folder, const struct budget_request *r, bool changed,
                           const char *text)
{
    struct str answer = {0};
    str_addf(&answer, "%s\n%s\n%s", r->id, changed ? "changed" : "refused", text);
    if (put_file(folder, ANSWER_NAME, &answer) != OK)
        log_warn("the answer to a change of budgets cannot be written: %s", status_message());
    str_release(&answer);
}
