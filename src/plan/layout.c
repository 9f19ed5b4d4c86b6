/* layout.c: greedy into the lowest gap over a portfolio of orders, then repair of what sticks out.
 *
 * Training programs are easy for offline greedy: buffers sorted by size land on the lower bound on
 * most transformer programs, where online best fit is up to 12 % over. Where they do not, some
 * instant is so full that it leaves no room for gaps, and no one order suits all such instants:
 * what is alive at the fullest has to be a stack, a later one wants buffers in the order of their
 * birth. Such a layout is wrong in a few places only, which repair.c puts right.
 */
#include "plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "plan/gaps.h"
#include "plan/repair.h"

enum {
    NEAR_BITS = 11,          /* within 2^-11 of the lower bound (0.05 %) is near enough to stop, */
    NOT_FAR_BITS = 6,        /* and within 2^-6 of it where that is what there is room for */
    WORK_PER_ITEM = 1000,    /* comparisons one repair may spend for each item */
    MAX_WORK = 60 * 1000000, /* and all together: a fraction of a second */
    LONG = 8192,             /* items: of more than that */
    ORDERS_OF_LONG = 4,      /* the first orders are the best there are, */
    HOPELESS_PART = 500, /* and what they leave over the bound, a part of it, is not repaired; */
    MEDIUM = 2048,       /* of more than that */
    HOPELESS_OF_MEDIUM = 25,   /* such a part is not */
    LONGEST = 128 * 1024,      /* items that orders may place in all, where that is more than one */
    ORDER_WORK = 80 * 1000000, /* comparisons that the orders may take: all of them for programs of
                                   some ten thousand buffers, one at least for any; */
    ORDER_COST = 10,           /* of them take as long as so many in a repair */
};

struct solver {
    struct layout_item *items; /* sizes aligned */
    size_t n;
    int64_t align;
    int64_t enough;     /* 0: the bound is */
    int32_t *order;     /* placement order under trial */
    struct gaps *gaps;  /* of what is placed so far */
    int64_t *tried;     /* offsets from each order of the portfolio */
    int64_t *best;      /* offsets of the lowest layout so far */
    int64_t work;       /* left for repairs, */
    int64_t order_work; /* and for orders */
    struct layout_result *result;
};

static int64_t aligned(int64_t n_bytes, int64_t align)
{
    return (n_bytes + align - 1) / align * align;
}

static int32_t last_time(const struct layout_item *items, size_t n)
{
    int32_t last = 0;
    for (size_t i = 0; i < n; i++)
        last = MAX(last, items[i].last);
    return last;
}

enum status layout_lower_bound(const struct layout_item *items, size_t n, int64_t align,
                               int64_t *n_bytes, int32_t *peak_time)
{
    int64_t *changes, live = 0, most = 0;
    int32_t end = last_time(items, n) + 1, when = 0;
    TRY(mem_try_array(&changes, (size_t)end + 1, sizeof(*changes)));
    for (size_t i = 0; i < n; i++) {
        if (items[i].last < items[i].first)
            continue; /* it never lives */
        int64_t size = aligned(items[i].n_bytes, align);
        changes[items[i].first] += size;
        changes[items[i].last + 1] -= size;
    }
    for (int32_t t = 0; t < end; t++) {
        live += changes[t];
        if (live > most) {
            most = live;
            when = t;
        }
    }
    mem_free(changes);
    *n_bytes = most;
    if (peak_time)
        *peak_time = when;
    return OK;
}

/* Places everything in s->order. */
static enum status place_all(struct solver *s, int64_t *height)
{
    gaps_clear(s->gaps);
    *height = 0;
    for (size_t k = 0; k < s->n; k++) {
        struct layout_item *item = &s->items[s->order[k]];
        TRY(gaps_place(s->gaps, item));
        *height = MAX(*height, item->offset + item->n_bytes);
    }
    s->order_work -= gaps_work(s->gaps);
    return OK;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Items sort by decreasing rank, then key, then tie; equal ones by index. */
struct keyed {
    double rank, key, tie;
    int32_t index;
};

static int descending(double x, double y)
{
    return x == y ? 0 : x > y ? -1 : 1;
}

static int by_key_descending(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    int order = descending(x->rank, y->rank);
    if (order == 0)
        order = descending(x->key, y->key);
    if (order == 0)
        order = descending(x->tie, y->tie);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static double size(const struct layout_item *i)
{
    return (double)i->n_bytes;
}

static double width(const struct layout_item *i)
{
    return (double)(i->last - i->first + 1);
}

static double area(const struct layout_item *i)
{
    return size(i) * width(i);
}

static double end(const struct layout_item *i)
{
    return (double)i->last;
}

static double start(const struct layout_item *i)
{
    return -(double)i->first;
}

static const struct method {
    const char *name;
    bool peak_first;
    double (*key)(const struct layout_item *);
    double (*tie)(const struct layout_item *);
} portfolio[] = {
    {"size", false, size, width},          {"area", false, area, size},
    {"width", false, width, size},         {"size, by start", false, size, start},
    {"start", false, start, size},         {"end", false, end, size},
    {"peak, by width", true, width, size}, {"peak, by start", true, start, size},
    {"peak, by end", true, end, size},     {"peak, by size", true, size, width},
    {"peak, by area", true, area, size},
};

enum { N_METHODS = ARRAY_LEN(portfolio) };

static enum status sort_order(struct solver *s, const struct method *m)
{
    struct keyed *k;
    TRY(mem_try_array(&k, s->n, sizeof(*k)));
    for (size_t i = 0; i < s->n; i++) {
        const struct layout_item *x = &s->items[i];
        bool at_peak = x->first <= s->result->peak_time && s->result->peak_time <= x->last;
        bool rest = m->peak_first && !at_peak;
        k[i] = (struct keyed){!rest, rest ? size(x) : m->key(x), rest ? width(x) : m->tie(x),
                              (int32_t)i};
    }
    qsort(k, s->n, sizeof(*k), by_key_descending);
    for (size_t i = 0; i < s->n; i++)
        s->order[i] = k[i].index;
    mem_free(k);
    return OK;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Where repair starts: the layout one order gave. */
struct start {
    int64_t height;
    const int64_t *offsets;
};

static int by_height(const void *a, const void *b)
{
    const struct start *x = a, *y = b;
    int order = (x->height > y->height) - (x->height < y->height);
    return order ? order : (x->offsets > y->offsets) - (x->offsets < y->offsets);
}

/* The layout in s->items becomes the best when it is lower. */
static void keep_lower(struct solver *s, int64_t height, const char *method)
{
    s->result->n_tries++;
    if (height >= s->result->height)
        return;
    s->result->height = height;
    s->result->method = method;
    for (size_t i = 0; i < s->n; i++)
        s->best[i] = s->items[i].offset;
}

static size_t count_orders(const struct solver *s)
{
    size_t n = s->n > LONG ? ORDERS_OF_LONG : N_METHODS;
    return MAX(MIN(n, LONGEST / s->n), (size_t)1);
}

static enum status try_orders(struct solver *s, struct start *starts, size_t *n_tried)
{
    size_t n_orders = count_orders(s);
    for (size_t p = 0; p < n_orders && s->result->height > s->result->lower_bound; p++) {
        int64_t *offsets = s->tried + p * s->n;
        if (s->order_work <= 0)
            break;
        *n_tried = p + 1;
        TRY(sort_order(s, &portfolio[p]));
        TRY(place_all(s, &starts[p].height));
        starts[p].offsets = offsets;
        for (size_t i = 0; i < s->n; i++)
            offsets[i] = s->items[i].offset;
        keep_lower(s, starts[p].height, portfolio[p].name);
    }
    return OK;
}

static enum status repair_from(struct solver *s, const int64_t *offsets, int64_t capacity)
{
    int64_t share = MIN(s->work, WORK_PER_ITEM * (int64_t)s->n), left = share, height;
    for (size_t i = 0; i < s->n; i++)
        s->items[i].offset = offsets[i];
    TRY(layout_repair(s->items, s->n, capacity, &left, &height));
    s->work -= share - left;
    keep_lower(s, height, "repair");
    return OK;
}

/* What repair aims at. */
static int64_t near_enough(const struct solver *s)
{
    const int64_t bound = s->result->lower_bound;
    int64_t near = bound + (bound >> NEAR_BITS), not_far = bound + (bound >> NOT_FAR_BITS);
    return MAX(near, MIN(s->enough, not_far)) / s->align * s->align;
}

/* What is no higher is left as it is. */
static int64_t wanted(const struct solver *s)
{
    return s->enough > 0 ? near_enough(s) : s->result->lower_bound;
}

/* Programs whose fetches of many sizes overlap leave gaps everywhere: nothing to put right in a few
 * places, and of a long one nothing to be tried for nothing. */
static bool is_beyond_repair(const struct solver *s)
{
    int64_t part = s->n > LONG ? HOPELESS_PART : HOPELESS_OF_MEDIUM;
    return s->n > MEDIUM && s->result->height > wanted(s) + s->result->lower_bound / part;
}

/* Which start can be repaired does not show in its height, so all get their turn: first to come
 * near enough, then, where none can, half way to that. Once there, one more try to meet the bound,
 * unless it was enough. */
static enum status improve(struct solver *s, struct start *starts, size_t n)
{
    struct layout_result *r = s->result;
    const int64_t near = near_enough(s);
    int64_t capacity = near;
    qsort(starts, n, sizeof(*starts), by_height);
    for (int round = 0; round < 2 && r->height > capacity; round++) {
        for (size_t k = 0; k < n && r->height > capacity && s->work > 0; k++)
            TRY(repair_from(s, starts[k].offsets, capacity));
        if (r->height > capacity)
            capacity += (r->height - capacity) / 2 / s->align * s->align;
    }
    if (r->height <= near && r->height > wanted(s) && s->work > 0)
        TRY(repair_from(s, s->best, r->lower_bound));
    return OK;
}

enum status layout_solve(struct layout_item *items, size_t n, int64_t align, int64_t enough,
                         struct layout_result *result)
{
    struct solver s = {.n = n,
                       .align = align,
                       .enough = enough,
                       .work = MAX_WORK,
                       .order_work = ORDER_WORK,
                       .result = result};
    struct start starts[N_METHODS];
    size_t n_starts = 0;
    enum status status;
    *result = (struct layout_result){.method = "empty"};
    TRY(layout_lower_bound(items, n, align, &result->lower_bound, &result->peak_time));
    if (n == 0)
        return OK;

    TRY_GOTO(mem_try_array(&s.items, n, sizeof(*s.items)), out);
    TRY_GOTO(mem_try_array(&s.order, n, sizeof(*s.order)), out);
    TRY_GOTO(gaps_new(&s.gaps, last_time(items, n)), out);
    TRY_GOTO(mem_try_array(&s.tried, N_METHODS * n, sizeof(*s.tried)), out);
    TRY_GOTO(mem_try_array(&s.best, n, sizeof(*s.best)), out);
    for (size_t i = 0; i < n; i++) {
        s.items[i] = items[i];
        s.items[i].n_bytes = aligned(items[i].n_bytes, align);
    }
    result->height = INT64_MAX;
    TRY_GOTO(try_orders(&s, starts, &n_starts), out);
    if (result->height > wanted(&s) && !is_beyond_repair(&s))
        TRY_GOTO(improve(&s, starts, n_starts), out);
    for (size_t i = 0; i < n; i++)
        items[i].offset = s.best[i];
    result->work = MAX_WORK - s.work + ORDER_COST * (ORDER_WORK - s.order_work);
out:
    mem_free(s.items);
    mem_free(s.order);
    gaps_free(s.gaps);
    mem_free(s.tried);
    mem_free(s.best);
    return status;
}
