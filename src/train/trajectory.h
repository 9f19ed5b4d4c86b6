/* trajectory.h: where weights would be some steps from now, by where they were.
 *
 * Snapshots x[0] .. x[n - 1] lie one interval apart, the last one being now; `k` is how many
 * intervals ahead. Two of the three methods give each tensor weights of the n - 1 steps between
 * snapshots, so that
 *
 *     x[n - 1] + sum over i of  q[i] * (x[i + 1] - x[i])
 *
 * is the place; the third looks at every element by itself. Nothing here allocates.
 */
#ifndef SNUG_TRAIN_TRAJECTORY_H
#define SNUG_TRAIN_TRAJECTORY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRAJECTORY_MOST = 16 }; /* snapshots */

/* The mean of the steps goes on. */
void trajectory_linear(int n, double k, double q[TRAJECTORY_MOST]);

/* Dynamic mode decomposition (Dogra & Redman, "Optimizing Neural Networks via Koopman Operator
 * Theory"): each step is a matrix A times the one before, fitted in the space that the steps span,
 * with no direction growing (singular values of A are at most 1). It is of steps and not of places,
 * because places about their mean would be drawn back to it. gram[i * (n - 1) + j]: product of
 * steps i and j, summed over the tensor. n >= 3. */
void trajectory_dmd(int n, const double *gram, double k, double q[TRAJECTORY_MOST]);

/* Adds to the products of steps those of n_elems elements. */
void trajectory_add_gram(const float *const *x, int n, int64_t n_elems, double *gram);

void trajectory_follow(const float *const *x, int n, const double *q, int64_t n_elems, float *to);

/* A line through each element's n >= 3 snapshots; it is followed from the last where its slope is
 * more than `least` of its own standard errors, and the element stays where it is not. Returns how
 * many are followed. */
int64_t trajectory_follow_lines(const float *const *x, int n, double k, double least,
                                int64_t n_elems, float *to);

#ifdef __cplusplus
}
#endif
#endif
