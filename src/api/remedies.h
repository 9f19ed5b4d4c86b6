/* remedies.h: inside api/: what would make room for a run, planned beside it. */
#ifndef SNUG_API_REMEDIES_H
#define SNUG_API_REMEDIES_H

#include <snug.h>

#include "watch/watch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_RUN_REMEDIES = 6 };

struct run_remedy {
    char setting[512]; /* as it is given to snug train */
    int64_t n_bytes;   /* of the memory that is short */
    double step_s;     /* predicted */
    bool same_losses;
};

struct run_remedies {
    struct run_remedy items[MOST_RUN_REMEDIES]; /* from the mildest on */
    int n;
    double step_s;  /* as it is */
    char note[256]; /* why there are none; "": there are */
};

/* For the memory an alert is about; plans several times, for seconds or minutes. */
void remedies_find(const struct watch *w, int memory, const struct snug_settings *settings,
                   struct run_remedies *out);
/* In lines; nothing where there are none. */
void remedies_add_text(const struct run_remedies *r, struct str *out);
json_t *remedies_json(const struct run_remedies *r);

/* The same in a process of its own at the lowest priority, so that neither the run nor whoever
 * watches it waits. */
struct remedy_search {
    int pid, fd;  /* 0, -1: none is under way */
    bool has_run; /* there is a result */
    struct run_remedies result;
};
void remedy_search_start(struct remedy_search *s, const struct watch *w, int memory,
                         const struct snug_settings *settings);
/* True when a result has just come. */
bool remedy_search_look(struct remedy_search *s);
void remedy_search_end(struct remedy_search *s);

#ifdef __cplusplus
}
#endif
#endif
