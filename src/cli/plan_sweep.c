/* plan_sweep.c: `snug plan --sweep device_memory=4GiB..24GiB`: what a budget buys. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "cli/points.h"

enum { POINTS = 11, POINTS_MOST = 101, BAR = 24 };

struct sweep {
    char key[32];
    int64_t from, to;
    int n;
    struct point points[POINTS_MOST];
    int64_t budgets[POINTS_MOST];
};

/* ---- what is asked for ----------------------------------------------------------------------- */

/* KEY=FROM..TO, KEY=FROM..TO/N */
static bool parse_range(const char *text, struct sweep *s)
{
    char from[32], to[32];
    int begin = 0, end = 0;
    int64_t n = POINTS;
    const char *dots = strstr(text, "..");
    if (!dots || sscanf(text, "%31[a-z_]=%n", s->key, &begin) != 1 || begin == 0 ||
        snprintf(from, sizeof(from), "%.*s", (int)(dots - text) - begin, text + begin) >=
            (int)sizeof(from))
        return false;
    if (sscanf(dots + 2, "%31[^/]%n", to, &end) != 1)
        return false;
    const char *rest = dots + 2 + end;
    if (*rest != '\0' && (*rest != '/' || !parse_int(rest + 1, &n)))
        return false;
    s->n = (int)MIN(n, (int64_t)POINTS_MOST + 1);
    return parse_bytes(from, &s->from) && parse_bytes(to, &s->to);
}

static enum snug_status read_range(const char *text, struct sweep *s)
{
    if (!parse_range(text, s))
        return usage_error("--sweep is '%s'; it must be a range such as device_memory=4GiB..24GiB, "
                           "or device_memory=4GiB..24GiB/21 for so many plans",
                           text);
    if (strcmp(s->key, "device_memory") != 0 && strcmp(s->key, "host_memory") != 0)
        return usage_error("--sweep of '%s'; it can be of device_memory or host_memory", s->key);
    if (s->from <= 0 || s->to <= s->from)
        return usage_error("--sweep is '%s': the range must grow from more than nothing", text);
    if (s->n < 2 || s->n > POINTS_MOST)
        return usage_error("--sweep is '%s'; it can have 2 to %d plans", text, POINTS_MOST);
    return SNUG_OK;
}

/* ---- what comes out -------------------------------------------------------------------------- */

/* A bar as long as its share of the best; eighths of a character at its end. */
static const char *bar_of(double share, char out[3 * BAR + 4])
{
    static const char *const parts[8] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int)(share * BAR * 8 + 0.5);
    out[0] = '\0';
    for (int i = 0; i < eighths / 8; i++)
        (void)strcat(out, "█");
    (void)strcat(out, parts[eighths % 8]);
    return out;
}

static double best_rate(const struct sweep *s)
{
    double best = 0;
    for (int i = 0; i < s->n; i++)
        best = s->points[i].fits ? MAX(best, s->points[i].tokens_per_s) : best;
    return best;
}

static void show_sweep(const struct sweep *s)
{
    double best = best_rate(s);
    log_info("%-13s %10s  %-*s  %s", s->key, "tokens/s", BAR, "", "plan");
    for (int i = 0; i < s->n; i++) {
        const struct point *p = &s->points[i];
        char budget[BYTES_TEXT], rate[BYTES_TEXT], bar[3 * BAR + 4], lack[64];
        format_bytes(budget, s->budgets[i]);
        double share = p->fits && best > 0 ? p->tokens_per_s / best : 0;
        int n_bar = (int)(share * BAR * 8 + 0.5), n_columns = (n_bar + 7) / 8;
        if (p->fits)
            log_info("%-13s %10s  %s%*s  %s", budget, format_rate(rate, p->tokens_per_s),
                     bar_of(share, bar), BAR - n_columns, "", p->text);
        else
            log_info("%-13s %10s  %*s  does not fit, lacks %s", budget, "-", BAR, "",
                     point_lack(p, lack));
    }
}

/* Of a card that is planned for: what it does not have was not planned for. */
static void show_most(const struct sweep *s)
{
    char most[BYTES_TEXT];
    const struct point *last = &s->points[s->n - 1];
    if (strcmp(s->key, "device_memory") == 0 && last->device_budget < s->to)
        show_line(4, "it has %s: larger budgets are planned for that",
                  format_bytes(most, last->device_budget));
}

static enum snug_status print_sweep(struct cli *cli, const struct sweep *s)
{
    struct str text = {0};
    json_t *rows = json_array();
    enum snug_status status = SNUG_OK;
    for (int i = 0; i < s->n && rows; i++) {
        json_t *row = point_json(&s->points[i]);
        (void)json_object_set_new(row, s->key, json_integer(s->budgets[i]));
        (void)json_array_append_new(rows, row);
    }
    json_t *root = json_pack("{s:s, s:o}", "sweep", s->key, "plans", rows);
    if (json_text_take(root, JSON_INDENT(2), &text) == OK)
        status = print_json(cli, str_take(&text));
    else
        status = memory_error();
    str_release(&text);
    return status;
}

static enum snug_status draw_sweep(const struct cli *cli, const struct sweep *s)
{
    struct str title = {0}, text = {0};
    const char *gpu = cli->args.gpu;
    str_addf(&title, "%s%s%s, tokens per second by %s", cli->args.words.items[0], gpu ? " on " : "",
             gpu ? gpu : "", s->key);
    sweep_svg(s->points, s->budgets, s->n, str_text(&title), &text);
    enum status status = str_status(&text);
    if (status == OK)
        status = file_write_atomic(cli->args.svg, str_text(&text), text.n);
    if (status == OK)
        log_info("wrote %s", cli->args.svg);
    str_release(&title);
    str_release(&text);
    return status == OK ? SNUG_OK : SNUG_ERR_IO;
}

/* What would fit is for the plan of one budget to say. */
static enum snug_status refuse_all(const struct sweep *s, const char *range)
{
    const char *most = strstr(range, "..") + 2;
    (void)FAIL(ERR_FIT,
               "does not fit in any of these budgets; snug plan with %s=%.*s names settings with "
               "which it would",
               s->key, (int)strcspn(most, "/"), most);
    return SNUG_ERR_FIT;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* The ends as they were given, and between them round numbers, where steps are many times that. */
static void choose_budgets(struct sweep *s)
{
    enum { MANY = 16 };
    const int64_t step = (s->to - s->from) / (s->n - 1) / MANY;
    const int64_t grain = step >= 1 << 20 ? 1 << 20 : step >= 1 << 10 ? 1 << 10 : 1;
    for (int i = 0; i < s->n; i++) {
        double at = (double)s->from + (double)(s->to - s->from) * i / (s->n - 1);
        s->budgets[i] = MAX((int64_t)at / grain * grain, s->from);
    }
    s->budgets[s->n - 1] = s->to;
}

static enum snug_status plan_points(struct cli *cli, struct sweep *s)
{
    choose_budgets(s);
    for (int i = 0; i < s->n; i++) {
        char override[64];
        (void)snprintf(override, sizeof(override), "%s=%lldB", s->key, (long long)s->budgets[i]);
        point_plan(&s->points[i], cli, cli->args.gpu, override);
        if (s->points[i].status != SNUG_OK)
            return s->points[i].status;
    }
    return SNUG_OK;
}

enum snug_status run_plan_sweep(struct cli *cli)
{
    struct sweep s = {0};
    enum snug_status status = read_range(cli->args.sweep, &s);
    if (status == SNUG_OK)
        status = plan_points(cli, &s);
    if (status != SNUG_OK)
        return status;
    show_sweep(&s);
    if (cli->args.gpu) {
        show_most(&s);
        show_host_of(&s.points[0]);
    }
    if (cli->args.svg)
        status = draw_sweep(cli, &s);
    if (status == SNUG_OK && cli->args.json)
        status = print_sweep(cli, &s);
    return status == SNUG_OK && best_rate(&s) <= 0 ? refuse_all(&s, cli->args.sweep) : status;
}
