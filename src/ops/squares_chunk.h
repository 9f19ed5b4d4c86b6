/* squares_chunk.h: what chunk_squares and its kernels agree on. */
#ifndef SNUG_OPS_SQUARES_CHUNK_H
#define SNUG_OPS_SQUARES_CHUNK_H

/* Elements whose squares are summed to one number. Few, so that whole rows of a matrix are soon
 * whole chunks; and many enough that their sums are next to nothing beside what they are of. */
enum { SQUARES_CHUNK = 2048 };

#endif
