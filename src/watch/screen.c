#include "watch/screen.h"

#ifdef SNUG_HAS_NCURSESW
#include <dlfcn.h>
#include <langinfo.h>
#include <locale.h>
#include <string.h>

#define NCURSES_NOMACROS
#include <ncurses.h>

#define FUNCTIONS(X)      \
    X(newterm)            \
    X(delscreen)          \
    X(endwin)             \
    X(cbreak)             \
    X(noecho)             \
    X(curs_set)           \
    X(has_colors)         \
    X(start_color)        \
    X(use_default_colors) \
    X(init_pair)          \
    X(keypad)             \
    X(wtimeout)           \
    X(wgetch)             \
    X(werase)             \
    X(wmove)              \
    X(waddnstr)           \
    X(wattr_set)          \
    X(wrefresh)           \
    X(getmaxx)            \
    X(getmaxy)

static struct {
    void *library;
    WINDOW **window; /* stdscr of the library */
    SCREEN *screen;
    bool colour;
#define X(name) __typeof__(name) *name;
    FUNCTIONS(X)
#undef X
} nc;

/* dlsym gives a data pointer; ISO C wants function pointers copied out of it. */
static bool load_function(void *function, size_t n_bytes, const char *name)
{
    void *symbol = dlsym(nc.library, name);
    memcpy(function, &symbol, n_bytes);
    return symbol != NULL;
}

static enum status load_library(void)
{
    bool all = true;
    if (nc.library)
        return OK;
    nc.library = dlopen(SNUG_NCURSESW_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!nc.library)
        return FAIL(ERR_UNSUPPORTED, SNUG_NCURSESW_LIBRARY " is not on this machine: %s",
                    dlerror());
#define X(name) all = load_function(&nc.name, sizeof(nc.name), #name) && all;
    FUNCTIONS(X)
#undef X
    nc.window = dlsym(nc.library, "stdscr");
    if (all && nc.window)
        return OK;
    (void)dlclose(nc.library);
    nc.library = NULL;
    return FAIL(ERR_UNSUPPORTED, SNUG_NCURSESW_LIBRARY " lacks functions that this build needs");
}

/* By ink: colour pairs, and attributes beside them. */
static const struct {
    short colour;
    attr_t attributes;
} inks[INK_COUNT] = {
    [INK_DIM] = {-1, A_DIM},
    [INK_PLAIN] = {-1, A_NORMAL},
    [INK_BOLD] = {-1, A_BOLD},
    [INK_GOOD] = {COLOR_GREEN, A_NORMAL},
    [INK_WARN] = {COLOR_YELLOW, A_BOLD},
    [INK_BAD] = {COLOR_RED, A_BOLD},
    [INK_CURVE] = {COLOR_CYAN, A_NORMAL},
    [INK_SECOND] = {COLOR_MAGENTA, A_NORMAL},
    [INK_CURSOR] = {COLOR_YELLOW, A_BOLD},
};

bool screen_is_built(void)
{
    return true;
}

enum status screen_open(bool colour)
{
    TRY(load_library());
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    nc.screen = nc.newterm(NULL, stdout, stdin);
    if (!nc.screen)
        return FAIL(ERR_UNSUPPORTED, "this terminal cannot be drawn on (is TERM set?): snug "
                                     "monitor --once prints the same as text");
    (void)nc.cbreak();
    (void)nc.noecho();
    (void)nc.curs_set(0);
    (void)nc.keypad(*nc.window, true);
    nc.colour =
        colour && nc.has_colors() && nc.start_color() == OK && nc.use_default_colors() == OK;
    for (short i = 0; nc.colour && i < INK_COUNT; i++)
        (void)nc.init_pair((short)(i + 1), inks[i].colour, -1);
    return OK;
}

void screen_close(void)
{
    if (!nc.screen)
        return;
    (void)nc.endwin();
    nc.delscreen(nc.screen);
    nc.screen = NULL;
}

void screen_size(int *n_rows, int *n_columns)
{
    *n_rows = nc.getmaxy(*nc.window);
    *n_columns = nc.getmaxx(*nc.window);
}

void screen_show(const struct canvas *c)
{
    WINDOW *w = *nc.window;
    (void)nc.werase(w);
    for (int row = 0; row < c->n_rows; row++) {
        for (int column = 0; column < c->n_columns; column++) {
            const struct cell *x = &c->cells[row * c->n_columns + column];
            if (!x->text[0])
                continue;
            (void)nc.wattr_set(w, inks[x->ink].attributes, (short)(nc.colour ? x->ink + 1 : 0),
                               NULL);
            if (nc.wmove(w, row, column) == OK)
                (void)nc.waddnstr(w, x->text, -1);
        }
    }
    (void)nc.wrefresh(w);
}

int screen_key(int milliseconds)
{
    nc.wtimeout(*nc.window, milliseconds);
    int key = nc.wgetch(*nc.window);
    return key == ERR || key == KEY_RESIZE ? 0 : key;
}

#else

bool screen_is_built(void)
{
    return false;
}

enum status screen_open(bool colour)
{
    (void)colour;
    return FAIL(ERR_UNSUPPORTED, "this build has no ncurses (`make deps` installs it, then build "
                                 "again): snug monitor --once prints the same as text");
}

void screen_close(void)
{
}

void screen_size(int *n_rows, int *n_columns)
{
    *n_rows = 24;
    *n_columns = 80;
}

void screen_show(const struct canvas *c)
{
    (void)c;
}

int screen_key(int milliseconds)
{
    (void)milliseconds;
    return 0;
}
#endif
