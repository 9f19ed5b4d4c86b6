#include "base/str.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

void str_release(struct str *s)
{
    mem_free(s->text);
    *s = (struct str){0};
}

void str_clear(struct str *s)
{
    s->n = 0;
    if (s->text)
        s->text[0] = '\0';
}

static int reserve(struct str *s, size_t extra)
{
    if (s->failed)
        return 0;
    size_t need = s->n + extra + 1;
    if (need <= s->capacity)
        return 1;
    size_t wanted = MAX(need, s->capacity * 2);
    char *grown = mem_realloc(s->text, wanted);
    if (!grown) {
        s->failed = 1;
        return 0;
    }
    s->text = grown;
    s->capacity = wanted;
    return 1;
}

void str_add_n(struct str *s, const char *text, size_t n)
{
    if (!reserve(s, n))
        return;
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_add_n(s, text, strlen(text));
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && reserve(s, (size_t)n)) {
        (void)vsnprintf(s->text + s->n, (size_t)n + 1, fmt, again);
        s->n += (size_t)n;
    }
    va_end(again);
}

const char *str_text(const struct str *s)
{
    return s->text ? s->text : "";
}

char *str_take(struct str *s)
{
    char *text = s->text;
    *s = (struct str){0};
    return text;
}

enum status str_status(const struct str *s)
{
    if (s->failed)
        return FAIL(ERR_MEMORY, "out of memory while building %zu bytes of text", s->n);
    return OK;
}

const char *format_bytes(char out[BYTES_TEXT], int64_t n_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)n_bytes;
    size_t u = 0;
    while (fabs(x) >= 1024.0 && u + 1 < ARRAY_LEN(units)) {
        x /= 1024.0;
        u++;
    }
    (void)snprintf(out, BYTES_TEXT, u == 0 ? "%.0f %s" : "%.2f %s", x, units[u]);
    return out;
}

const char *format_count(char out[BYTES_TEXT], int64_t n)
{
    char digits[24];
    int len = snprintf(digits, sizeof(digits), "%lld", (long long)n);
    int first = digits[0] == '-';
    char *to = out;
    for (int i = 0; i < len; i++) {
        if (i > first && (len - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return out;
}

const char *format_rate(char out[BYTES_TEXT], double per_second)
{
    if (per_second >= 10 || per_second <= 0)
        return format_count(out, llround(MIN(per_second, 9e18)));
    (void)snprintf(out, BYTES_TEXT, "%.2f", per_second);
    return out;
}

const char *format_duration(char out[BYTES_TEXT], double seconds)
{
    if (seconds > 0 && seconds < 0.01)
        (void)snprintf(out, BYTES_TEXT, "%.2g ms", seconds * 1e3);
    else if (seconds < 1.0)
        (void)snprintf(out, BYTES_TEXT, "%.0f ms", seconds * 1e3);
    else if (seconds < 60.0)
        (void)snprintf(out, BYTES_TEXT, "%.1f s", seconds);
    else if (seconds < 3600.0)
        (void)snprintf(out, BYTES_TEXT, "%dm%02ds", (int)(seconds / 60), (int)seconds % 60);
    else
        (void)snprintf(out, BYTES_TEXT, "%lldh%02dm", (long long)(seconds / 3600),
                       (int)fmod(seconds / 60, 60));
    return out;
}

int parse_double(const char *text, double *value)
{
    char *end;
    while (isspace((unsigned char)*text))
        text++;
    if (*text == '\0' || (!isdigit((unsigned char)*text) && !strchr("+-.", *text)) ||
        strpbrk(text, "xXnN"))
        return 0; /* strtod would also take nan, inf and hexadecimal words */
    errno = 0;
    double x = strtod(text, &end);
    if (end == text || !isfinite(x))
        return 0;
    while (isspace((unsigned char)*end))
        end++;
    if (*end != '\0')
        return 0;
    *value = x;
    return 1;
}

int parse_int(const char *text, int64_t *value)
{
    char plain[64];
    size_t n = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '_')
            continue;
        if (n + 1 >= sizeof(plain))
            return 0;
        plain[n++] = *c;
    }
    plain[n] = '\0';

    char *end;
    errno = 0;
    long long exact = strtoll(plain, &end, 10);
    if (end != plain && *end == '\0' && errno == 0) {
        *value = exact;
        return 1;
    }
    double x; /* 5e8, 1e9: integers as people write them */
    if (!parse_double(plain, &x) || floor(x) != x || fabs(x) > 9.0e18)
        return 0;
    *value = (int64_t)x;
    return 1;
}

int parse_bool(const char *text, int *value)
{
    static const char *const yes[] = {"true", "yes", "on", "1", "True", "TRUE", "y"};
    static const char *const no[] = {"false", "no", "off", "0", "False", "FALSE", "n"};
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcmp(text, yes[i]) == 0) {
            *value = 1;
            return 1;
        }
        if (strcmp(text, no[i]) == 0) {
            *value = 0;
            return 1;
        }
    }
    return 0;
}

int parse_bytes(const char *text, int64_t *n_bytes)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {
        {"", 1},
        {"b", 1},
        {"k", 1024.0},
        {"kb", 1e3},
        {"kib", 1024.0},
        {"m", 1048576.0},
        {"mb", 1e6},
        {"mib", 1048576.0},
        {"g", 1073741824.0},
        {"gb", 1e9},
        {"gib", 1073741824.0},
        {"t", 1099511627776.0},
        {"tb", 1e12},
        {"tib", 1099511627776.0},
    };
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return 0;
    double x = strtod(text, &end);
    if (end == text || !isfinite(x) || x < 0)
        return 0;
    while (*end == ' ')
        end++;
    char unit[8] = "";
    for (size_t i = 0; end[i]; i++) {
        if (i + 1 >= sizeof(unit))
            return 0;
        unit[i] = (char)tolower((unsigned char)end[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(unit, units[i].unit) == 0) {
            double bytes = x * units[i].factor;
            if (bytes > 9.0e18)
                return 0;
            *n_bytes = (int64_t)bytes;
            return 1;
        }
    }
    return 0;
}

/* Letters that matter when two keys are compared: case, '-' and '_' do not. */
static size_t normalise(char *out, size_t size, const char *s)
{
    size_t n = 0;
    for (; *s && n + 1 < size; s++) {
        if (*s != '-' && *s != '_')
            out[n++] = (char)tolower((unsigned char)*s);
    }
    out[n] = '\0';
    return n;
}

/* Edit distance with transpositions (optimal string alignment), over at most 63 letters. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][64];
    for (size_t j = 0; j <= n_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = MIN(best, last[j] + 1);
            best = MIN(best, now[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, before[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

const char *suggest(const char *word, const char *const *candidates, size_t n)
{
    char a[64], b[64];
    size_t n_a = normalise(a, sizeof(a), word);
    size_t best = n_a / 3 + 1; /* as far away as this is no typing slip */
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(a, n_a, b, normalise(b, sizeof(b), candidates[i]));
        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}

int str_starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

int str_ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}
