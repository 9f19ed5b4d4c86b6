/* timeline.h: the memory of one tier over a program, by class, for people to look at.
 *
 *     struct timeline t;
 *     TRY(timeline_init(&t, &(struct timeline_view){program, storage, TIER_DEVICE, 72}));
 *     TRY(timeline_draw(&t, &(struct timeline_style){.budget = budget}, &text));
 *     timeline_release(&t);
 *
 * Instructions are the time axis, or a clock is: a column stands for a run of them and shows the
 * fullest instant in it. All sizes are bytes with every buffer rounded up to ARENA_ALIGN, storage
 * included.
 */
#ifndef SNUG_PROGRAM_TIMELINE_H
#define SNUG_PROGRAM_TIMELINE_H

#include "base/str.h"
#include "program/lanes.h"
#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct timeline_column {
    int64_t by_class[MEMORY_CLASS_COUNT];
    int64_t total;
    int32_t instr; /* where the column is fullest */
};

/* Where a part of the step begins ("forward", "backward", "update"; "begin" of the accumulators),
 * or something that is not run in every step ("fewer micro-batches"). */
struct timeline_mark {
    const char *name;
    int column;
};

struct timeline {
    struct pool pool;
    const char *program; /* its name */
    enum tier tier;
    int n_columns; /* at most the number asked for, and at least 1 */
    struct timeline_column *columns;
    struct timeline_mark *marks;
    int n_marks;
    struct timeline_column peak; /* the fullest instant of all */
    int peak_column;
    const char *peak_place; /* "backward of block 3, attention_grad" */
    int64_t arena_bytes;    /* the arena: peak.total plus what addresses leave unused */
};

/* What is looked at: a program that is placed, one of its tiers. */
struct timeline_view {
    const struct program *program;
    const struct storage *storage;
    enum tier tier;
    int n_columns;
    const double *clock; /* see predict_clock: columns are equally long; NULL: by instructions */
    int64_t n_micro;     /* of a step; 0: not known */
};

/* Strings are copied: the timeline outlives program and storage. */
enum status timeline_init(struct timeline *t, const struct timeline_view *v) MUST_CHECK;
void timeline_release(struct timeline *t);

/* The classes from the bottom of a drawing up: what lives longest first. */
extern const enum memory_class timeline_stack[MEMORY_CLASS_COUNT];
/* Does any column hold bytes of the class? */
bool timeline_has(const struct timeline *t, enum memory_class kind);

struct timeline_style {
    int64_t budget; /* bytes; 0 or INT64_MAX: none */
    int n_rows;     /* of the terminal drawing; 0: 12 */
    bool colour;    /* ANSI colours; without them classes are told apart by letters */
};

/* Appends a drawing for a terminal (UTF-8, about n_columns + 14 wide) with a legend. */
enum status timeline_draw(const struct timeline *t, const struct timeline_style *style,
                          struct str *out) MUST_CHECK;
/* A picture for documents. The timelines have the same program and the same columns. */
struct timeline_picture {
    const char *title;                        /* NULL: none */
    const struct timeline *tiers[TIER_COUNT]; /* one panel each, from the top; NULL: none */
    int64_t budgets[TIER_COUNT];              /* bytes; 0 or INT64_MAX: none */
    const struct lanes *lanes;                /* below them; NULL: none */
    double seconds; /* that the columns stand for; 0: they are instructions */
};

/* Appends a whole SVG document: stacked areas per class, budget line, peak, legend; queues. Use a
 * few hundred columns. */
enum status timeline_svg(const struct timeline_picture *picture, struct str *out) MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
