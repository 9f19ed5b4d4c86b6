#include "base/skyline.h"

#include "base/alloc.h"
#include "base/compiler.h"

/* A tree of halves: node k has 2k and 2k + 1, leaves are the places. What is added to a whole node
 * stays there and counts for everything below it. */
struct node {
    int32_t at, from, end; /* [from, end) are its places */
};

static struct node root(const struct skyline *s)
{
    return (struct node){1, 0, s->n};
}

static struct node half(struct node x, int which)
{
    int32_t middle = x.from + (x.end - x.from) / 2;
    return which ? (struct node){2 * x.at + 1, middle, x.end}
                 : (struct node){2 * x.at, x.from, middle};
}

enum status skyline_init(struct skyline *s, int32_t n_places)
{
    *s = (struct skyline){.n = 1};
    while (s->n < n_places)
        s->n *= 2;
    enum status status = mem_try_array(&s->most, (size_t)s->n * 2, sizeof(*s->most));
    if (status == OK)
        status = mem_try_array(&s->raised, (size_t)s->n * 2, sizeof(*s->raised));
    if (status != OK)
        skyline_release(s);
    return status;
}

void skyline_release(struct skyline *s)
{
    mem_free(s->most);
    mem_free(s->raised);
    *s = (struct skyline){0};
}

static void raise_in(struct skyline *s, struct node x, int32_t from, int32_t end, int64_t by)
{
    if (end <= x.from || x.end <= from)
        return;
    if (from <= x.from && x.end <= end) {
        s->most[x.at] += by;
        s->raised[x.at] += by;
        return;
    }
    raise_in(s, half(x, 0), from, end, by);
    raise_in(s, half(x, 1), from, end, by);
    s->most[x.at] = MAX(s->most[2 * x.at], s->most[2 * x.at + 1]) + s->raised[x.at];
}

void skyline_raise(struct skyline *s, int32_t from, int32_t end, int64_t by)
{
    raise_in(s, root(s), from, end, by);
}

int64_t skyline_most(const struct skyline *s)
{
    return s->most[1];
}

/* first: the half to look into before the other. */
static int32_t find_in(const struct skyline *s, struct node x, int32_t from, int32_t end,
                       int64_t height, int first)
{
    if (end <= x.from || x.end <= from || s->most[x.at] <= height)
        return -1;
    if (x.end - x.from == 1)
        return x.from;
    height -= s->raised[x.at];
    int32_t found = find_in(s, half(x, first), from, end, height, first);
    return found >= 0 ? found : find_in(s, half(x, !first), from, end, height, first);
}

int32_t skyline_first_above(const struct skyline *s, int32_t from, int32_t end, int64_t height)
{
    return find_in(s, root(s), from, end, height, 0);
}

int32_t skyline_last_above(const struct skyline *s, int32_t from, int32_t end, int64_t height)
{
    return find_in(s, root(s), from, end, height, 1);
}
