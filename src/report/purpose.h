/* purpose.h: why a buffer is where it is, for as long as it is: what reports say about it. */
#ifndef SNUG_REPORT_PURPOSE_H
#define SNUG_REPORT_PURPOSE_H

#include "program/program.h"

#ifdef __cplusplus
extern "C" {
#endif

enum purpose {
    PURPOSE_HOME,      /* storage of the device */
    PURPOSE_AWAY,      /* storage of another tier */
    PURPOSE_RESERVED,  /* of the run, beside the program */
    PURPOSE_CARRIED,   /* from section to section */
    PURPOSE_PORT,      /* the host's end of inputs and outputs */
    PURPOSE_INPUT,     /* the device's end */
    PURPOSE_FETCHED,   /* storage from elsewhere, for use */
    PURPOSE_RETURNED,  /* a moved value, back for its readers */
    PURPOSE_MOVED,     /* the same while it is away */
    PURPOSE_LEAVING,   /* the same until it leaves */
    PURPOSE_AGAIN,     /* recomputed */
    PURPOSE_DROPPED,   /* the same, in the forward pass */
    PURPOSE_SAVED,     /* for the backward pass */
    PURPOSE_GRADIENT,  /* until its update */
    PURPOSE_PASSING,   /* between neighbours */
    PURPOSE_LOGITS,    /* a part of them, as workspace */
    PURPOSE_WORKSPACE, /* of a kernel */
    PURPOSE_COUNT
};

enum purpose purpose_of(const struct program *p, const struct plan *plan, const struct buffer *b);
/* A sentence without its full stop. */
const char *purpose_text(enum purpose x);

#ifdef __cplusplus
}
#endif
#endif
