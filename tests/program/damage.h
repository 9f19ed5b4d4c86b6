/* damage.h: training programs that are damaged in turn, here and there, and what the check must
 * say: each is rejected, or gives the same bits. */
#ifndef SNUG_TESTS_PROGRAM_DAMAGE_H
#define SNUG_TESTS_PROGRAM_DAMAGE_H

#include "support/training.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything at once: recompute, moved activations, storage and sums on the host. */
struct setup {
    struct training_options options;
    int64_t ring_bytes;  /* fetched ahead, and leaving behind */
    int64_t slice_bytes; /* of updates; 0: whole */
    bool forms;          /* gradients that can be are never whole */
    int one_in;          /* of the events, for the brute force: so many; 0: all */
    enum tier away;      /* where all that leaves goes; 0: the host */
    bool defer_updates;  /* gradients of block 1 are carried on the host, others on the device */
};

struct tally {
    struct training *t;
    uint64_t want;
    int n_damages, n_rejected, n_harmless;
};

void damage_open(struct training *t, const struct setup *s);
/* Opens the program, damages it and says what came of it: some of it must have been rejected. */
void damage_program(const struct setup *s, void (*damage)(struct tally *c), const char *what);
/* The program as it is now is rejected, or gives the bits it gave before. */
void damage_judge(struct tally *c, const char *what, int at, int detail);
/* The program as it is now is rejected. */
void damage_expect_rejected(struct tally *c, const char *what, int at);

/* What stands in the place of a removed instruction: an event that nobody waits for. */
struct instr damage_nothing(struct program *p);

/* Damages: */
void drop_each_instruction(struct tally *c);
void swap_neighbours(struct tally *c);
void change_operands(struct tally *c);

/* Each event of the first section is left out: rejected where the order between queues, by brute
 * force, is broken. */
void damage_events(const struct setup *s);

#ifdef __cplusplus
}
#endif
#endif
