/* team.h: threads that share the items of a loop.
 *
 *     static void add_rows(const void *job, int64_t first, int64_t last, int thread);
 *
 *     team_run(team, n_rows, grain, add_rows, &job);
 *
 * runs the work over pieces [first, last) of [0, n_rows) and comes back when every item is done.
 * The caller is thread 0 of the team and works too.
 *
 * Each thread begins with a share of its own, the same one in every loop of as many items, so that
 * it finds in its cache what it wrote there; then it helps with the shares of the others. A thread
 * that the system is not running therefore holds up nobody but for the piece in its hands. Which
 * thread runs a piece, and how a loop is cut, differs from run to run: results must depend on items
 * alone, and `thread` is for scratch memory only.
 *
 * Between loops threads watch for the next one for a short while, then sleep: a step's loops follow
 * one another within microseconds, but a thread that only watches must not take a core that other
 * programs wait for.
 */
#ifndef SNUG_BASE_TEAM_H
#define SNUG_BASE_TEAM_H

#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct team;

/* Items first .. last - 1 of a loop, by thread number `thread` of the team. */
typedef void team_work(const void *job, int64_t first, int64_t last, int thread);

/* n_threads >= 1, the caller among them. */
enum status team_new(struct team **out, int n_threads) MUST_CHECK;
void team_free(struct team *t);

/* Items [0, n), in pieces of at least `grain` where there are as many (a smaller loop is run by the
 * caller alone). A team runs one loop at a time. t NULL: the caller is all there is. */
void team_run(struct team *t, int64_t n, int64_t grain, team_work *work, const void *job);

/* Copies n_bytes, which do not overlap, in pieces of a MiB: one thread moves ten GB in a second. */
void team_copy(struct team *t, void *to, const void *from, int64_t n_bytes);

/* Seconds that its threads have spent ready to run while others had the processors, the caller
 * among them; 0 where the system does not say. */
double team_delay_s(const struct team *t);

#ifdef __cplusplus
}
#endif
#endif
