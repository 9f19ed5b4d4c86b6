#include "watch/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- points ---------------------------------------------------------------------------------- */

static void merge(struct curve_point *a, const struct curve_point *b)
{
    a->last = b->last;
    if (b->n > 0) {
        a->least = a->n > 0 ? fmin(a->least, b->least) : b->least;
        a->most = a->n > 0 ? fmax(a->most, b->most) : b->most;
    }
    a->n += b->n;
    a->sum += b->sum;
    a->lr = b->lr;
    a->rate += b->rate;
    a->n_rates += b->n_rates;
}

static void halve(struct curve *c)
{
    int n = 0;
    for (int i = 0; i < c->n; i += 2, n++) {
        c->points[n] = c->points[i];
        if (i + 1 < c->n)
            merge(&c->points[n], &c->points[i + 1]);
    }
    c->n = n;
    c->stride *= 2;
}

/* Steps from here on were run again: what is there of them goes. */
static void go_back(struct curve *c, int64_t step)
{
    while (c->n > 0 && c->points[c->n - 1].first >= step)
        c->n--;
    while (c->n_evals > 0 && c->evals[c->n_evals - 1].step >= step)
        c->n_evals--;
}

void curve_add(struct curve *c, int64_t step, double loss, double lr, double rate)
{
    bool counts = isfinite(loss), timed = isfinite(rate);
    struct curve_point one = {.first = step,
                              .last = step,
                              .n = counts,
                              .sum = counts ? loss : 0,
                              .least = counts ? loss : 0,
                              .most = counts ? loss : 0,
                              .lr = isfinite(lr) ? lr : 0,
                              .rate = timed ? rate : 0,
                              .n_rates = timed};
    c->stride = c->stride > 0 ? c->stride : 1;
    if (c->n > 0 && step <= c->points[c->n - 1].last)
        go_back(c, step);
    c->n_steps = step;
    struct curve_point *last = c->n > 0 ? &c->points[c->n - 1] : NULL;
    if (last && step - last->first < c->stride) {
        merge(last, &one);
        return;
    }
    if (c->n == CURVE_POINTS)
        halve(c);
    c->points[c->n++] = one;
}

static void add_eval(struct curve *c, int64_t step, double loss)
{
    while (c->n_evals > 0 && c->evals[c->n_evals - 1].step >= step)
        c->n_evals--;
    if (c->n_evals == CURVE_EVALS) {
        memmove(c->evals, c->evals + 1, sizeof(c->evals[0]) * (CURVE_EVALS - 1));
        c->n_evals--;
    }
    c->evals[c->n_evals++] = (struct curve_eval){step, loss};
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The number behind "key":, as our own lines have it; NAN: there is none, or it is null. A whole
 * JSON reader would be ten times as slow, and there may be a million lines. */
static double number_of(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    char *end;
    if (!at)
        return (double)NAN;
    at += strlen(key);
    double x = strtod(at, &end);
    return end == at ? (double)NAN : x;
}

void curve_take_line(struct curve *c, const char *line)
{
    bool is_step = strstr(line, "\"kind\":\"step\"") != NULL;
    bool is_eval = !is_step && strstr(line, "\"kind\":\"eval\"") != NULL;
    if (!is_step && !is_eval)
        return;
    double step = number_of(line, "\"step\":"), loss = number_of(line, "\"loss\":");
    if (!isfinite(step) || step < 0 || step > 1e15)
        return;
    double ms = number_of(line, "\"step_ms\":");
    if (is_eval)
        add_eval(c, (int64_t)step, loss);
    else
        curve_add(c, (int64_t)step, loss, number_of(line, "\"lr\":"),
                  ms > 0 ? 1e3 / ms : (double)NAN);
}

/* ---- the file -------------------------------------------------------------------------------- */

static void take_bytes(struct curve *c, const char *text, size_t n)
{
    enum { LONGEST = 1 << 20 };
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t take = end ? (size_t)(end - text) : n;
        if (c->line.n + take < LONGEST)
            str_add_n(&c->line, text, take);
        if (end) {
            curve_take_line(c, str_text(&c->line));
            str_clear(&c->line);
            take++;
        }
        text += take;
        n -= take;
    }
}

static void start_over(struct curve *c, uint64_t file)
{
    struct str line = c->line;
    str_clear(&line);
    *c = (struct curve){.file = file, .line = line};
}

static enum status read_on(struct curve *c, int fd, const char *path, int64_t most, bool *more)
{
    char buffer[65536];
    struct stat st;
    if (fstat(fd, &st) != 0)
        return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    uint64_t file = (uint64_t)st.st_ino ^ (uint64_t)st.st_dev << 48;
    if (file != c->file || st.st_size < c->offset)
        start_over(c, file);
    while (most > 0) {
        ssize_t n = pread(fd, buffer, sizeof(buffer), c->offset);
        if (n < 0)
            return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            break;
        take_bytes(c, buffer, (size_t)n);
        c->offset += n;
        most -= n;
    }
    *more = c->offset < st.st_size;
    return str_status(&c->line);
}

enum status curve_read(struct curve *c, const char *folder, int64_t most, bool *more)
{
    char path[4096];
    *more = false;
    if ((size_t)snprintf(path, sizeof(path), "%s/metrics.jsonl", folder) >= sizeof(path))
        return FAIL(ERR_IO, "%s: the path is too long", folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return OK;
    if (fd < 0)
        return FAIL(ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    enum status status = read_on(c, fd, path, most, more);
    (void)close(fd);
    return status;
}

void curve_release(struct curve *c)
{
    str_release(&c->line);
    *c = (struct curve){0};
}
