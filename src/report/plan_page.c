#include "report/plan_page.h"

#include <snug.h>
#include <string.h>

#include "train/trace.h"

/* The page before and after its data; of cmake/Page.cmake. */
extern const unsigned char page_head[], page_tail[];

static void add_lines(struct str *out, const char *lines)
{
    struct str line = {0};
    str_add(out, "[");
    for (const char *at = lines; *at;) {
        size_t n = strcspn(at, "\n");
        str_clear(&line);
        str_add_n(&line, at, n);
        str_add(out, at == lines ? "" : ",");
        trace_add_string(out, str_text(&line));
        at += n + (at[n] == '\n');
    }
    str_add(out, "]");
    out->failed |= line.failed;
    str_release(&line);
}

/* The data stands in a script element, whose end must not appear in it; in JSON a '<' is always
 * inside a string, where it can be written in another way. */
static void add_for_script(struct str *out, const char *json)
{
    for (const char *at = json; *at;) {
        size_t n = strcspn(at, "<");
        str_add_n(out, at, n);
        at += n;
        if (*at) {
            str_add(out, "\\u003c");
            at++;
        }
    }
}

static enum status add_data(const struct plan_data *d, const struct plan_words *words,
                            struct str *out)
{
    str_add(out, "{\"snug\":\"" SNUG_VERSION "\",\"forecast\":");
    str_add(out, words->forecast);
    str_add(out, ",\"decisions\":");
    add_lines(out, words->decisions);
    str_add(out, ",\"plan\":");
    TRY(plan_data_add(d, out));
    str_add(out, "}");
    return str_status(out);
}

enum status plan_page_print(const struct plan_data *d, const struct plan_words *words,
                            struct str *out)
{
    struct str data = {0};
    enum status status = add_data(d, words, &data);
    if (status == OK) {
        str_add(out, (const char *)page_head);
        add_for_script(out, str_text(&data));
        str_add(out, (const char *)page_tail);
        status = str_status(out);
    }
    str_release(&data);
    return status;
}
