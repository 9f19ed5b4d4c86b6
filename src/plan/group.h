/* group.h: micro-batches that go through the network together, block by block.
 *
 *     one at a time   a: block 0, 1, 2, ...  head ... 2, 1, 0    b: block 0, 1, 2, ...
 *     a group         block 0: a b   block 1: a b  ...  head: a b  ...  block 1: a b   block 0: a b
 *
 * A weight that is not at home on the device is then fetched once for the group, and a sum of
 * gradients is written home once. Every micro-batch runs the same calls on the same operands as it
 * would alone, and its terms are added to the sums in the order of the micro-batches: all results
 * are the same to the bit.
 *
 * Blocks that share what a micro-batch changes (running statistics of a layer that is run for every
 * frame) go together as one.
 *
 * The graph says it: nodes of the forward and backward pass are there once for each micro-batch of
 * the group (node.micro), with inputs of their own, in an order that goes from block to block.
 */
#ifndef SNUG_PLAN_GROUP_H
#define SNUG_PLAN_GROUP_H

#include "graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* More are hardly worth it: weights then cross the link once where they crossed it 64 times. */
enum { GROUP_MOST = 64 };

/* The graph of a step whose micro-batches run in groups of n >= 2, made from that of one at a time.
 * Values of `single` keep their numbers and are those of micro-batch 0. It borrows names, constants
 * and attributes: `single` outlives it. */
enum status group_graph(struct graph **out, const struct graph *single, int n) MUST_CHECK;

/* Micro-batches in a group of this graph: 1 where they run one at a time. */
int group_size(const struct graph *g);

/* What micro-batch m's part of an input is called: "tokens", "tokens.1", ... The text is valid in
 * `buffer`, or is name itself. */
enum { GROUP_NAME = 128 };
const char *group_input_name(char buffer[GROUP_NAME], const char *name, int m);

#ifdef __cplusplus
}
#endif
#endif
