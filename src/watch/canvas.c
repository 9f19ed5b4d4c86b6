#include "watch/canvas.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const lefts[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

enum status canvas_init(struct canvas *c, int n_rows, int n_columns)
{
    *c = (struct canvas){.n_rows = MAX(n_rows, 1), .n_columns = MAX(n_columns, 1)};
    return mem_try_array(&c->cells, (size_t)c->n_rows * (size_t)c->n_columns, sizeof(*c->cells));
}

void canvas_release(struct canvas *c)
{
    mem_free(c->cells);
    *c = (struct canvas){0};
}

/* Bytes of the character that begins here. */
static size_t character_bytes(const char *text)
{
    unsigned char first = (unsigned char)text[0];
    size_t most = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1, n = 1;
    while (n < most && ((unsigned char)text[n] & 0xC0) == 0x80)
        n++;
    return n;
}

void canvas_put(struct canvas *c, int row, int column, enum ink ink, const char *character)
{
    if (row < 0 || row >= c->n_rows || column < 0 || column >= c->n_columns)
        return;
    struct cell *x = &c->cells[row * c->n_columns + column];
    size_t n = character_bytes(character);
    memset(x->text, 0, sizeof(x->text));
    memcpy(x->text, character, n);
    if ((unsigned char)x->text[0] < ' ')
        x->text[0] = x->text[0] ? '?' : '\0'; /* nothing that a terminal would obey */
    x->ink = (unsigned char)ink;
}

int canvas_text(struct canvas *c, int row, int column, int width, enum ink ink, const char *text)
{
    int end = column + MAX(width, 0);
    for (; *text && column < end; column++) {
        canvas_put(c, row, column, ink, text);
        text += character_bytes(text);
    }
    return column;
}

int canvas_textf(struct canvas *c, int row, int column, int width, enum ink ink, const char *fmt,
                 ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return canvas_text(c, row, column, width, ink, text);
}

void canvas_bar(struct canvas *c, int row, int column, int width, double share, enum ink ink)
{
    int n = (int)(MIN(MAX(share, 0.0), 1.0) * width * 8 + 0.5);
    for (int i = 0; i < width; i++) {
        int part = MIN(MAX(n - 8 * i, 0), 8);
        if (part > 0)
            canvas_put(c, row, column + i, ink, lefts[part]);
        else
            canvas_put(c, row, column + i, INK_DIM, "·");
    }
}

void canvas_column(struct canvas *c, int bottom, int column, int height, double share, enum ink ink)
{
    int n = (int)(MIN(MAX(share, 0.0), 1.0) * height * 8 + 0.5);
    for (int i = 0; i < height && n - 8 * i > 0; i++)
        canvas_put(c, bottom - i, column, ink, eighths[MIN(n - 8 * i, 8)]);
}

static const char *const codes[INK_COUNT] = {"",         "\033[2m",  "\033[1m",
                                             "\033[32m", "\033[33m", "\033[31m",
                                             "\033[36m", "\033[35m", "\033[1;33m"};

static void print_row(const struct canvas *c, int row, bool colour, struct str *out)
{
    const struct cell *x = &c->cells[row * c->n_columns];
    int n = c->n_columns, ink = INK_PLAIN;
    while (n > 0 && (!x[n - 1].text[0] || strcmp(x[n - 1].text, " ") == 0))
        n--;
    for (int i = 0; i < n; i++) {
        if (colour && x[i].ink != ink) {
            str_addf(out, "\033[0m%s", codes[x[i].ink]);
            ink = x[i].ink;
        }
        str_add(out, x[i].text[0] ? x[i].text : " ");
    }
    str_add(out, ink != INK_PLAIN ? "\033[0m\n" : "\n");
}

enum status canvas_print(const struct canvas *c, bool colour, struct str *out)
{
    for (int row = 0; row < c->n_rows; row++)
        print_row(c, row, colour, out);
    return str_status(out);
}
